"""Python clients besides the official SDK, which the black-box tests use throughout."""

from __future__ import annotations

from pathlib import Path

from tests.clients.conftest import Run
from tests.clients.scripted import ANSWER, Address
from tests.support.server import ServerProcess

LANGCHAIN = "langchain-openai>=1,<2"
LITELLM = "litellm>=1.80,<2"
CALLS = [["weather", {"town": "Oslo"}]]


def test_langchain(run_python: Run, server: ServerProcess) -> None:
    result = run_python(server, "use_langchain.py", LANGCHAIN)
    assert result["streamed"] == result["text"]
    assert result["finish_reason"] == "length"
    assert result["tokens"] == 6
    assert result["streamed_tokens"] == 6
    assert result["batched"] == 2
    assert result["completed"]


def test_langchain_calls_tools(run_python: Run, scripted: Address) -> None:
    result = run_python(scripted, "call_tools_langchain.py", LANGCHAIN)
    assert result["text"] == "Let me look."
    assert result["calls"] == result["streamed_calls"] == CALLS
    assert result["answer"] == ANSWER


def test_litellm(run_python: Run, server: ServerProcess) -> None:
    result = run_python(server, "use_litellm.py", LITELLM)
    assert result["streamed"] == result["text"]
    assert result["finish_reason"] == "length"
    assert result["tokens"] == 6
    assert result["context_error"] == "ContextWindowExceededError"
    assert result["model_error"] == "NotFoundError"


def test_litellm_calls_tools(run_python: Run, scripted: Address) -> None:
    result = run_python(scripted, "call_tools_litellm.py", LITELLM)
    assert result["calls"] == result["streamed_calls"] == CALLS
    assert result["reason"] == "tool_calls"


def test_llm(run_python: Run, server: ServerProcess) -> None:
    result = run_python(server, "use_llm.py", "llm>=0.27")
    assert result["streamed"] == result["text"]
    assert result["text"]


def test_instructor(run_python: Run, scripted: Address) -> None:
    result = run_python(scripted, "use_instructor.py", "instructor>=1.14,<2")
    assert result == {"person": {"name": "Ada", "age": 36}, "finish_reason": "stop"}


def test_aiperf(run_python: Run, server: ServerProcess, weights: Path) -> None:
    result = run_python(server, "use_aiperf.py", "aiperf>=0.13,<1", arguments=[str(weights)])
    assert result["request_count"] == 12
    assert result["time_to_first_token"] > 0
    assert result["inter_token_latency"] > 0
    assert "error_request_count" not in result


def test_lm_eval(run_python: Run, server: ServerProcess, weights: Path) -> None:
    packages = ("lm-eval[api]>=0.4.10,<0.5", "transformers>=5.24,<6")
    result = run_python(server, "use_lm_eval.py", *packages, arguments=[str(weights)])
    assert 0 <= result["accuracy"] <= 1
    assert all(-1000 < score < 0 for scores in result["log_likelihoods"] for score in scores)
    assert len(result["log_likelihoods"]) == 2
