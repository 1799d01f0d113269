"""JavaScript clients."""

from __future__ import annotations

from tests.clients.conftest import Run


def test_the_official_sdk(run_node: Run) -> None:
    result = run_node("use_openai.mjs", "openai@6")
    assert result["streamed"] == result["text"]
    assert result["finishReason"] == "length"
    assert result["tokens"] == 6
    assert result["usageChoices"] == 0
    assert result["helper"] == result["text"]
    assert result["models"] == [result["model"]]
    assert result["error"] == "model_not_found"


def test_the_ai_sdk(run_node: Run) -> None:
    result = run_node("use_ai_sdk.mjs", "ai@6", "@ai-sdk/openai-compatible@2")
    assert result["streamed"] == result["text"]
    assert result["finishReason"] == "length"
    assert result["streamedFinishReason"] == "length"
    assert result["tokens"] == 6
