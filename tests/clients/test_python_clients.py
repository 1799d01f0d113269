"""Python clients besides the official SDK, which the black-box tests use throughout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.conftest import Run
from tests.clients.scripted import ANSWER, Address
from tests.clients.shirts import check_shirts
from tests.support.server import ServerProcess, serving
from tests.support.tiny_model import write_tiny_model

LANGCHAIN = "langchain-openai>=1,<2"
LITELLM = "litellm>=1.80,<2"
INSTRUCTOR = "instructor>=1.14,<2"
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


def test_langchain_structures(run_python: Run, server: ServerProcess) -> None:
    check_shirts(run_python(server, "structure_langchain.py", LANGCHAIN)["shirts"], 3)


def test_langchain_embeds(run_python: Run, tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny")
    arguments = ("--executor", "simulated", "--model", str(model), "--embedding-model", f"embed={model}")
    with serving(tmp_path / "log", *arguments) as server:
        result = run_python(server, "embed_langchain.py", LANGCHAIN, arguments=["embed"])
    bus, paris = result["documents"]
    assert result["query"] == pytest.approx(bus)
    assert len(bus) == len(paris) > 1
    assert bus != paris


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


@pytest.mark.parametrize("mode", ["MD_JSON", "JSON"])
def test_instructor(run_python: Run, scripted: Address, mode: str) -> None:
    result = run_python(scripted, "use_instructor.py", INSTRUCTOR, arguments=[mode])
    assert result == {"person": {"name": "Ada", "age": 36}, "finish_reason": "stop"}


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_instructor_structures(run_python: Run, server: ServerProcess, mode: str) -> None:
    check_shirts(run_python(server, "structure_instructor.py", INSTRUCTOR, arguments=[mode])["shirts"], 2)


@pytest.mark.parametrize("load", [("--concurrency", "8"), ("--request-rate", "20", "--request-rate-mode", "poisson")])
def test_aiperf(run_python: Run, server: ServerProcess, weights: Path, load: tuple[str, ...]) -> None:
    result = run_python(server, "use_aiperf.py", "aiperf>=0.13,<1", arguments=[str(weights), "60", *load])
    assert result["request_count"] == result["records"] == 60
    assert result["errors"] == []
    assert "error_request_count" not in result
    assert result["output_tokens"] == [8]
    assert result["time_to_first_token"] > 0
    assert result["inter_token_latency"] > 0


def test_lm_eval(run_python: Run, server: ServerProcess, weights: Path) -> None:
    packages = ("lm-eval[api]>=0.4.10,<0.5", "transformers>=5.24,<6")
    result = run_python(server, "use_lm_eval.py", *packages, arguments=[str(weights)])
    assert 0 <= result["accuracy"] <= 1
    assert len(result["scored"]) == 4
    for context, continuation, log_likelihood in result["scored"]:
        assert log_likelihood == pytest.approx(by_transformers(weights, context, continuation), abs=1e-3)


def by_transformers(directory: Path, context: str, continuation: str) -> float:
    """The log-probability of what is gone on with, as transformers computes it by itself."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    token_ids = tokenizer.encode(context + continuation, add_special_tokens=False)
    start = len(tokenizer.encode(context, add_special_tokens=False))
    with torch.no_grad():
        logprobs = model(torch.tensor([token_ids])).logits[0].log_softmax(-1)
    return sum(float(logprobs[position - 1, token_ids[position]]) for position in range(start, len(token_ids)))
