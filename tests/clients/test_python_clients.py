"""Python clients besides the official SDK, which the black-box tests use throughout."""

from __future__ import annotations

from tests.clients.conftest import Run


def test_langchain(run_python: Run) -> None:
    result = run_python("use_langchain.py", "langchain-openai>=1,<2")
    assert result["streamed"] == result["text"]
    assert result["finish_reason"] == "length"
    assert result["tokens"] == 6
    assert result["streamed_tokens"] == 6
    assert result["batched"] == 2
    assert result["completed"]


def test_litellm(run_python: Run) -> None:
    result = run_python("use_litellm.py", "litellm>=1.80,<2")
    assert result["streamed"] == result["text"]
    assert result["finish_reason"] == "length"
    assert result["tokens"] == 6
    assert result["context_error"] == "ContextWindowExceededError"
    assert result["model_error"] == "NotFoundError"


def test_llm(run_python: Run) -> None:
    result = run_python("use_llm.py", "llm>=0.27")
    assert result["streamed"] == result["text"]
    assert result["text"]
