"""Grammars in the engine: compiled before admission, followed through preemption, and ended where they end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from core_engine.clock import VirtualClock
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor import ModelSpec
from core_engine.grammars.compiler import GrammarCompiler
from core_engine.grammars.grammar import Grammar
from core_engine.grammars.vocabulary import Vocabulary
from core_engine.lab.simulated import SimulatedExecutor, SimulatedModel
from core_engine.messages import IterationOutput, SequenceOutput
from core_engine.request import Request, SamplingParams
from core_engine.testkit import simulated_engine
from core_engine.text import TextModel, load_text_model
from tests.support.tiny_model import write_tiny_model

RECORD = Grammar(
    "json_schema",
    json.dumps(
        {
            "type": "object",
            "properties": {"id": {"type": "string", "pattern": "^[a-z]{12}$"}, "ok": {"type": "boolean"}},
            "required": ["id", "ok"],
            "additionalProperties": False,
        }
    ),
)


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    return load_text_model(write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny"))


class Bench:
    """An engine whose compiler waits for `may_compile`."""

    def __init__(self, text_model: TextModel, num_blocks: int = 64) -> None:
        self.text_model = text_model
        self.may_compile = threading.Event()
        self.may_compile.set()
        ends = text_model.eos_token_ids
        spec = ModelSpec(
            name="simulated", architecture="simulated", dtype="float32", device="simulated",
            vocab_size=text_model.vocab_size, max_model_len=4096, num_blocks=num_blocks, block_size=4,
            kv_bytes_per_token=1024, eos_token_ids=ends,
        )  # fmt: skip

        def load_vocabulary() -> Vocabulary:
            self.may_compile.wait()
            return Vocabulary.of(text_model, spec.vocab_size, ends)

        clock = VirtualClock()
        config = EngineConfig(
            executor="simulated", block_size=4, token_limit=64, sequence_limit=8, check_integrity=True, seed=0
        )
        executor = SimulatedExecutor(spec, clock, SimulatedModel())
        self.engine = Engine(config, executor, clock=clock, grammars=GrammarCompiler(load_vocabulary))
        self.messages: list[IterationOutput] = []

    def submit(self, name: str, grammar: Grammar | None = RECORD, n: int = 1, **sampling: Any) -> None:
        params = SamplingParams(**{"max_tokens": 200, "grammar": grammar, **sampling})
        self.engine.submit(Request(id=name, model="simulated", prompt_token_ids=[5, 6, 7], sampling=params, n=n))

    def step(self) -> IterationOutput:
        self.messages.append(self.engine.step())
        return self.messages[-1]

    def run(self) -> None:
        while self.engine.has_work:
            self.step()

    def outputs(self, name: str, sample: int = 0) -> list[SequenceOutput]:
        pieces = [piece for message in self.messages for piece in message.outputs]
        return [piece for piece in pieces if (piece.request_id, piece.sample_index) == (name, sample)]

    def said(self, name: str, sample: int = 0) -> str:
        """What a sequence said, having ended by itself."""
        pieces = self.outputs(name, sample)
        assert pieces[-1].finish_reason == "stop", pieces[-1]
        token_ids = [token for piece in pieces for token in piece.token_ids]
        return self.text_model.decode(token_ids[:-1] if pieces[-1].stop_token_id is not None else token_ids)


@pytest.fixture
def bench(text_model: TextModel) -> Iterator[Bench]:
    made = Bench(text_model)
    yield made
    made.may_compile.set()


def is_record(text: str) -> bool:
    value = json.loads(text)
    return set(value) == {"id", "ok"} and len(value["id"]) == 12 and type(value["ok"]) is bool


def test_every_sample_follows_the_grammar_by_itself(bench: Bench) -> None:
    bench.submit("a", n=4)
    bench.submit("free", None, max_tokens=5)
    bench.run()
    texts = {bench.said("a", sample) for sample in range(4)}
    assert len(texts) == 4
    assert all(map(is_record, texts))
    assert bench.outputs("free")[-1].finish_reason == "length"


def test_preempted_sequences_go_on_where_they_stood(text_model: TextModel) -> None:
    bench = Bench(text_model, num_blocks=12)
    for name in "abcd":
        bench.submit(name)
    bench.run()
    assert sum(outcome.num_preemptions for message in bench.messages for outcome in message.finished) > 3
    assert all(is_record(bench.said(name)) for name in "abcd")


@pytest.mark.parametrize("sampling", [{"min_tokens": 100}, {"ignore_eos": True}])
def test_a_complete_output_ends_whatever_else_is_asked(bench: Bench, sampling: dict[str, Any]) -> None:
    bench.submit("a", **sampling)
    bench.submit("b", Grammar("choice", '[""]'), **sampling)
    bench.run()
    assert is_record(bench.said("a"))
    assert bench.said("b") == ""


def test_the_length_cuts(bench: Bench) -> None:
    bench.submit("a", max_tokens=3)
    bench.run()
    assert bench.outputs("a")[-1].finish_reason == "length"


def test_nobody_waits_for_a_grammar_of_others(bench: Bench) -> None:
    bench.may_compile.clear()
    bench.submit("slow")
    bench.submit("free", None, max_tokens=3)
    for _ in range(10):
        bench.step()
    assert bench.outputs("free")[-1].finish_reason == "length"
    assert not bench.outputs("slow")
    bench.may_compile.set()
    bench.run()
    assert is_record(bench.said("slow"))


def test_a_request_cancelled_while_its_grammar_is_compiled_never_enters(bench: Bench) -> None:
    bench.may_compile.clear()
    bench.submit("gone")
    bench.step()
    bench.engine.cancel("gone")
    bench.step()
    assert not bench.engine.has_work
    bench.may_compile.set()
    bench.submit("a")
    bench.run()
    assert {accepted.request_id for message in bench.messages for accepted in message.accepted} == {"a"}


def test_what_can_not_be_compiled_is_refused(bench: Bench) -> None:
    bench.submit("bad", Grammar("regex", "("))
    bench.submit("good")
    bench.run()
    (refusal,) = [refusal for message in bench.messages for refusal in message.rejected]
    assert (refusal.request_id, refusal.reason, refusal.retry_after_seconds) == ("bad", "invalid_grammar", None)
    assert is_record(bench.said("good"))


def test_a_grammar_that_becomes_too_much_work_fails_its_request_alone(bench: Bench) -> None:
    bench.submit("hard", Grammar("regex", "[ab]{4000}"), n=2, max_tokens=4000)
    bench.submit("good")
    while not bench.outputs("hard"):
        bench.step()
    state = bench.engine.state.requests["hard"]
    matcher = state.sequences[0].matcher
    assert matcher is not None
    matcher.advance(0)  # no token that it allows: as an automaton at the end of its means would
    bench.run()
    for sample in range(2):
        failed = bench.outputs("hard", sample)[-1]
        assert failed.finish_reason == "error"
        assert "grammar" in (failed.error or "")
    assert is_record(bench.said("good"))


def test_an_engine_without_a_compiler_refuses() -> None:
    engine, _ = simulated_engine()
    engine.submit(Request(id="a", model="simulated", prompt_token_ids=[1], sampling=SamplingParams(grammar=RECORD)))
    (refusal,) = engine.step().rejected
    assert refusal.reason == "grammars_unsupported"
