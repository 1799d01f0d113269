"""GrammarChecker and its process: hostile grammars end in a refusal, and nobody else notices."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from core_engine.errors import InvalidRequest, Overloaded
from core_engine.grammars.checker import GrammarChecker
from core_engine.grammars.grammar import Grammar
from core_engine.text import TextModel, load_text_model
from tests.support.tiny_model import write_tiny_model

GOOD = Grammar("regex", "[ab]{3}")


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    return load_text_model(write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny"))


@pytest.fixture
async def checker(text_model: TextModel) -> AsyncIterator[GrammarChecker]:
    checker = GrammarChecker(text_model, max_waiting=4)
    yield checker
    await checker.close()


def schema(value: object) -> Grammar:
    return Grammar("json_schema", json.dumps(value))


def references(length: int) -> Grammar:
    """A chain so long that following it ends a process."""
    links = {f"a{n}": {"type": "array", "items": {"$ref": f"#/$defs/a{n + 1}"}} for n in range(length)}
    return schema({"$ref": "#/$defs/a0", "$defs": {**links, f"a{length}": {}}})


def rules(length: int) -> Grammar:
    return Grammar("lark", "start: r0\n" + "\n".join(f"r{n}: r{n + 1}" for n in range(length)) + f'\nr{length}: "a"')


HOSTILE = {
    "references": references(3000),
    "rules": rules(15_000),
    "nesting": Grammar("regex", "(" * 100_000 + "a" + ")" * 100_000),
    "deep schema": Grammar("json_schema", '{"items":' * 20_000 + "{}" + "}" * 20_000),
    "deep rules": Grammar("lark", "start: " + "(" * 100_000 + '"a"' + ")" * 100_000),
    "cycle": schema({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}),
    "doubling": Grammar("lark", "start: R0\n" + "".join(f"R{n}: R{n + 1} R{n + 1}\n" for n in range(40)) + 'R40: "a"'),
    "product": schema({"allOf": [{"anyOf": [{"properties": {f"p{i}{j}": {}}} for j in range(6)]} for i in range(12)]}),
    "repetition": Grammar("regex", "(ab|cd)*" * 20_000),
    "size": schema({"enum": [f"value {n}" for n in range(500_000)]}),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "repetition")) for name in HOSTILE]
)
async def test_a_hostile_grammar_is_refused_and_others_are_served(checker: GrammarChecker, name: str) -> None:
    refused, served = await asyncio.gather(checker.check(HOSTILE[name]), checker.check(GOOD), return_exceptions=True)
    assert isinstance(refused, InvalidRequest)
    assert refused.code == "invalid_grammar"
    assert len(str(refused)) < 500
    assert served is None
    with pytest.raises(InvalidRequest):
        await checker.check(HOSTILE[name])


async def test_a_process_that_died_by_itself_is_no_fault_of_a_grammar(checker: GrammarChecker) -> None:
    await checker.check(GOOD)
    assert checker._process is not None
    checker._process.kill()
    await checker.check(Grammar("regex", "c+"))


async def test_a_grammar_that_ends_a_process_ends_no_second_one(
    checker: GrammarChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await checker.check(GOOD)
    started = []
    start = checker._start

    async def counted() -> asyncio.subprocess.Process:
        started.append(1)
        return await start()

    monkeypatch.setattr(checker, "_start", counted)
    with pytest.raises(InvalidRequest, match="depth"):
        await checker.check(HOSTILE["references"])
    assert not started


async def test_verdicts_are_remembered(checker: GrammarChecker) -> None:
    await checker.check(GOOD)
    await checker._end()
    await checker.check(GOOD)
    assert checker._process is None


async def test_callers_that_leave_disturb_nobody(checker: GrammarChecker) -> None:
    leaving = [asyncio.ensure_future(checker.check(Grammar("regex", f"a{{{n}}}"))) for n in range(3)]
    await asyncio.sleep(0)
    for caller in leaving:
        caller.cancel()
    await checker.check(GOOD)
    with pytest.raises(InvalidRequest):
        await checker.check(Grammar("regex", "("))


async def test_those_that_wait_are_bounded(checker: GrammarChecker) -> None:
    results = await asyncio.gather(
        *(checker.check(Grammar("regex", f"a{{{n}}}")) for n in range(8)), return_exceptions=True
    )
    assert [type(result) for result in results] == [type(None)] * 4 + [Overloaded] * 4
    await checker.check(Grammar("regex", "a{7}"))


async def test_equal_grammars_wait_together(checker: GrammarChecker) -> None:
    await asyncio.gather(*(checker.check(GOOD) for _ in range(20)))
