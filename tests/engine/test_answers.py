from __future__ import annotations

import math
from typing import Any

import pytest

from core_engine import answers
from core_engine.panel import BadAnswer
from core_engine.plan import Admit, IterationPlan, PrefillLimit, Reject

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("wrong", [True, 1.0, "1", None, NAN, [1]])
def test_integers_are_ints(wrong: Any) -> None:
    with pytest.raises(BadAnswer):
        answers.integer(wrong)


def test_clamping() -> None:
    check = answers.clamped(1, 10)
    assert [check(-5), check(1), check(7), check(10), check(1 << 70)] == [1, 1, 7, 10, 10]


@pytest.mark.parametrize(
    "right", [Admit(), Admit({"x-a": "1"}), Reject("full", 0.5), Reject("full", 3, "m", {"a": "b"})]
)
def test_right_admissions(right: Any) -> None:
    assert answers.admission(right) is right


@pytest.mark.parametrize(
    "wrong",
    [
        True, "admit", Admit({"a": 1}), Admit({1: "a"}), Admit([("a", "b")]), Reject("", 1.0), Reject(None, 1.0),  # type: ignore[arg-type,dict-item]
        Reject("full", 0), Reject("full", -1.0), Reject("full", NAN), Reject("full", INF), Reject("full", "1"),  # type: ignore[arg-type]
        Reject("full", 1.0, None), Reject("full", 1.0, "m", {"a": None}),  # type: ignore[arg-type,dict-item]
    ],
)  # fmt: skip
def test_wrong_admissions(wrong: Any) -> None:
    with pytest.raises(BadAnswer):
        answers.admission(wrong)


@pytest.mark.parametrize(
    "right",
    [PrefillLimit(), PrefillLimit(prompt_tokens=0, seconds=0, new_sequences=0, keep_free_blocks=0, held={1: "why"})],
)
def test_right_limits(right: PrefillLimit) -> None:
    assert answers.prefill_limit(right) is right


@pytest.mark.parametrize(
    "wrong",
    [
        None, 5, {"prompt_tokens": 5}, PrefillLimit(prompt_tokens=-1), PrefillLimit(prompt_tokens=2.0),  # type: ignore[arg-type]
        PrefillLimit(new_sequences=True), PrefillLimit(keep_free_blocks="1"), PrefillLimit(seconds=-0.1),  # type: ignore[arg-type]
        PrefillLimit(seconds=NAN), PrefillLimit(seconds=INF), PrefillLimit(held=[1]), PrefillLimit(held={"1": "why"}),  # type: ignore[arg-type,dict-item]
        PrefillLimit(held={1: None}), PrefillLimit(reason=None),  # type: ignore[arg-type,dict-item]
    ],
)  # fmt: skip
def test_wrong_limits(wrong: Any) -> None:
    with pytest.raises(BadAnswer):
        answers.prefill_limit(wrong)


def test_right_rankings() -> None:
    assert answers.ranking(((3, 1), {1})) == ([3, 1], {1})
    assert answers.ranking(([], set())) == ([], set())


@pytest.mark.parametrize("wrong", [5, [1, 2, 3], ([1], 5), (["1"], set()), ([1.0], set()), ([1], {None}), ([True], [])])
def test_wrong_rankings(wrong: Any) -> None:
    with pytest.raises(BadAnswer):
        answers.ranking(wrong)


def test_right_victims() -> None:
    assert answers.victims((3, 1, 3)) == [3, 1, 3]
    assert answers.victims(range(2)) == [0, 1]


@pytest.mark.parametrize("wrong", [5, "12", [1.0], [None], [True]])
def test_wrong_victims(wrong: Any) -> None:
    with pytest.raises(BadAnswer):
        answers.victims(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        None, {1: 2}, IterationPlan([1]), IterationPlan({1: 2}, 1), IterationPlan({1: 2}, None),  # type: ignore[arg-type]
        IterationPlan({}, True, -1), IterationPlan({}, True, 1.0), IterationPlan({}, True, True),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_wrong_plans(wrong: Any) -> None:
    with pytest.raises(BadAnswer):
        answers.plan_shape(wrong)
