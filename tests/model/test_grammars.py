"""Structured output of a real model: random schemas in a batch at temperature 1."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.grammars.grammar import Grammar
from core_engine.messages import SequenceOutput
from core_engine.request import Request, SamplingParams
from core_engine.text import load_text_model
from tests.support.schemas import Schema, random_schemas
from tests.support.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama with a context that no answer here fills."""
    directory = write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny", max_model_len=4096)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory)).save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def engine(directory: Path) -> Engine:
    config = EngineConfig(
        model=str(directory), dtype="float32", sequence_limit=16, kv_memory_bytes=4 << 20, probe=False, seed=0
    )
    return Engine.load(config)


def answers(engine: Engine, schemas: list[Schema], **sampling: object) -> dict[int, list[SequenceOutput]]:
    """What was put out for each, with all of them waiting at once."""
    for number, schema in enumerate(schemas):
        params = SamplingParams(temperature=1.0, grammar=Grammar("json_schema", json.dumps(schema)), **sampling)  # type: ignore[arg-type]
        engine.submit(Request(id=str(number), model=engine.info.model, prompt_token_ids=[9, 8, 7], sampling=params))
    told: dict[int, list[SequenceOutput]] = {number: [] for number in range(len(schemas))}
    while engine.has_work:
        output = engine.step()
        assert not output.rejected
        for piece in output.outputs:
            told[int(piece.request_id)].append(piece)
    return told


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.full)])
def test_random_schemas_always_hold(engine: Engine, directory: Path, count: int) -> None:
    schemas = random_schemas(count, seed=count)
    text_model = load_text_model(directory)
    for number, pieces in answers(engine, schemas, max_tokens=3000).items():
        assert pieces[-1].finish_reason == "stop"
        said = text_model.decode([token for piece in pieces for token in piece.token_ids])
        jsonschema.validate(json.loads(said), schemas[number])


def test_log_probabilities_are_of_the_unconstrained_model(engine: Engine) -> None:
    forced = {"const": "x"}
    (pieces,) = answers(engine, [forced], max_tokens=8, logprobs=0).values()
    for piece in pieces:
        assert piece.logprobs is not None
        assert piece.logprobs[0].logprob < -1.0
