"""JavaScript clients."""

from __future__ import annotations

from tests.clients.conftest import Run
from tests.clients.scripted import ANSWER, Address
from tests.clients.shirts import check_shirts
from tests.support.server import ServerProcess

OPENAI = ("openai@6",)
AI_SDK = ("ai@6", "@ai-sdk/openai-compatible@2")


def test_the_official_sdk(run_node: Run, server: ServerProcess) -> None:
    result = run_node(server, "use_openai.mjs", *OPENAI)
    assert result["streamed"] == result["text"]
    assert result["finishReason"] == "length"
    assert result["tokens"] == 6
    assert result["usageChoices"] == 0
    assert result["helper"] == result["text"]
    assert result["models"] == [result["model"]]
    assert result["error"] == "model_not_found"
    assert result["events"] == result["response"]
    assert result["response"]


def test_the_official_sdk_runs_tools(run_node: Run, scripted: Address) -> None:
    result = run_node(scripted, "call_tools.mjs", *OPENAI)
    assert result["text"] == "Let me look."
    assert result["calls"] == [["weather", {"town": "Oslo"}]]
    assert result["towns"] == ["Oslo"]
    assert result["answer"] == ANSWER


def test_the_ai_sdk(run_node: Run, server: ServerProcess) -> None:
    result = run_node(server, "use_ai_sdk.mjs", *AI_SDK)
    assert result["streamed"] == result["text"]
    assert result["finishReason"] == "length"
    assert result["streamedFinishReason"] == "length"
    assert result["tokens"] == 6


def test_the_ai_sdk_runs_tools(run_node: Run, scripted: Address) -> None:
    result = run_node(scripted, "call_tools_ai_sdk.mjs", *AI_SDK)
    assert result["answer"] == ANSWER
    assert result["steps"] == ["tool-calls", "stop"]
    assert result["streamed"].endswith(ANSWER)
    assert result["towns"] == ["Oslo", "Oslo"]


def test_the_ai_sdk_structures(run_node: Run, server: ServerProcess) -> None:
    check_shirts(run_node(server, "structure_ai_sdk.mjs", *AI_SDK)["shirts"], 2)
