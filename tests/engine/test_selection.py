from __future__ import annotations

from typing import Annotated

import msgspec
import pytest

from core_engine.config import EngineConfig
from core_engine.errors import ConfigurationError
from core_engine.hookspecs import hookimpl
from core_engine.selection import available_policies, build_policies, build_policy, parse_options
from core_engine.testkit import simulated_engine
from plugins.orca import Orca, OrcaOptions


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.35
    bands: list[tuple[int, int]] = []
    action: str = "hold_new"


class Policy:
    Options = Options
    hookspec_range = (1, 1)

    def __init__(self, options: Options, seed: int) -> None:
        if options.action == "explode":
            raise ValueError("actions must not explode")
        self.options = options
        self.seed = seed

    @hookimpl
    def reserve_blocks(self) -> int:
        return 0


def test_all_of_ours_are_found_by_name() -> None:
    ours = {"fcfs", "stall_free", "last_in", "paged", "queue_limit", "orca", "static_batch"}
    assert ours <= set(available_policies())
    built = build_policies(tuple(sorted(ours)), 7)
    assert [policy.name for policy in built] == sorted(ours)


def test_options_are_typed() -> None:
    policy = build_policies(("orca:max_batch=4,output=predicted",), 0)[0].policy
    assert isinstance(policy, Orca)
    assert policy.options == OrcaOptions(max_batch=4, output="predicted")


def test_the_policy_gets_its_seed() -> None:
    assert build_policy("mine", Policy, "", 42)[1].seed == 42


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ("a=1", {"a": 1}),
        ("a=0.5,b=word,c=true", {"a": 0.5, "b": "word", "c": True}),
        ("bands=[[256,0],[2048,16]],a=1", {"bands": [[256, 0], [2048, 16]], "a": 1}),
        (" a = 1 , b = x y ", {"a": 1, "b": "x y"}),
    ],
)
def test_option_texts(text: str, options: dict[str, object]) -> None:
    assert parse_options("mine", text) == options


@pytest.mark.parametrize("text", ["a", "=1", "a=1,b"])
def test_an_option_without_a_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="option=value"):
        parse_options("mine", text)


def test_an_unknown_policy_lists_near_names() -> None:
    with pytest.raises(ConfigurationError, match=r"no policy 'static_bach'.*static_batch"):
        build_policies(("static_bach",), 0)


def test_a_name_like_nothing_lists_all() -> None:
    with pytest.raises(ConfigurationError, match=r"no policy 'zzzzzz'.*fcfs.*orca.*static_batch"):
        build_policies(("zzzzzz",), 0)


def test_a_policy_named_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'orca' is named twice"):
        build_policies(("orca", "orca:max_batch=2"), 0)


def test_an_unknown_option_lists_those_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"'orca' has no option 'max_batches'.*max_batch, output"):
        build_policies(("orca:max_batches=2",), 0)
    with pytest.raises(ConfigurationError, match=r"'fcfs' has no option 'a'.*none"):
        build_policies(("fcfs:a=1",), 0)


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("orca:max_batch=0", ["'orca'", "max_batch=0", ">= 1"]),
        ("orca:max_batch=many", ["'orca'", "max_batch='many'", "int"]),
        ("orca:output=guessed", ["'orca'", "output='guessed'"]),
        ("paged:headroom=65", ["'paged'", "headroom=65", "<= 64"]),
        ("queue_limit:max_requests=0", ["'queue_limit'", "max_requests=0", ">= 1"]),
        ("static_batch:pad=perhaps", ["'static_batch'", "pad='perhaps'", "bool"]),
    ],
)
def test_a_wrong_option_names_policy_option_value_and_range(spec: str, parts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build_policies((spec,), 0)
    for part in parts:
        assert part in str(caught.value)


def test_the_one_wrong_option_of_several_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"share=2"):
        build_policy("mine", Policy, "action=cap,share=2,bands=[]", 0)


def test_what_the_policy_itself_refuses_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="must not explode"):
        build_policy("mine", Policy, "action=explode", 0)


def test_a_policy_for_other_hookspecs_is_refused() -> None:
    class Future(Policy):
        hookspec_range = (7, 9)

    with pytest.raises(ConfigurationError, match="7 to 9"):
        build_policy("future", Future, "", 0)


def test_the_configuration_selects_them() -> None:
    engine, _ = simulated_engine(["orca", "paged:headroom=3"])
    described = engine.info.policies
    assert described["plan_iteration"] == ["orca", "stall_free"]
    assert described["reserve_blocks"] == ["orca", "paged"]
    assert described["rank_sequences"] == ["fcfs"]


def test_a_token_limit_below_the_sequence_limit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"token_limit 8 is below sequence_limit 9"):
        EngineConfig(token_limit=8, sequence_limit=9)
