"""Plugins: from an entry point to a policy object. What is wrong with one is said, and stops nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from core_engine.errors import ConfigurationError
from core_engine.hookspecs import HOOKSPEC_VERSION, hookimpl
from core_engine.selection import available_policies, build_policies, build_policy, parse_options, rivals
from core_engine.testkit import simulated_engine
from tests.testkit.packages import GOOD, install


class Options(msgspec.Struct, frozen=True):
    size: int = 1


class Sound:
    Options = Options
    hookspec_range = (1, 1)

    def __init__(self, options: Any, seed: int) -> None:
        self.options = options
        self.seed = seed

    @hookimpl
    def rank_sequences(self) -> Any:
        return (), set()


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ("a=1", {"a": 1}),
        ("a=1,b=[1,[2,3]],c=word", {"a": 1, "b": [1, [2, 3]], "c": "word"}),
        (' a = 1 , b={"x":1,"y":2}', {"a": 1, "b": {"x": 1, "y": 2}}),
        ("a=true,b=null,c=0.5", {"a": True, "b": None, "c": 0.5}),
        ("path=/some/where=else", {"path": "/some/where=else"}),
    ],
)
def test_options_are_json_or_words(text: str, options: dict[str, Any]) -> None:
    assert parse_options("policy", text) == options


@pytest.mark.parametrize("text", ["a", "=1", "a=1,b", "a=1,a=2"])
def test_what_are_no_options_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="policy 'policy'"):
        parse_options("policy", text)


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        (("orka",), "there is no policy 'orka'; did you mean orca"),
        (("zzz",), "there is no policy 'zzz'; there are .*orca.*stall_free"),
        (("orca", "orca:max_batch=2"), "'orca' is named twice"),
        (("orca:max_bach=2",), "'orca' has no option 'max_bach'; its options are max_batch, output"),
        (("fcfs:size=2",), "'fcfs' has no option 'size'; it has none"),
        (("orca:max_batch=0",), "'orca': option max_batch=0 is wrong: .*>= 1"),
        (("orca:max_batch=many",), "'orca': option max_batch='many' is wrong"),
        (
            ("orca:output=guessed",),
            "output='guessed' is wrong: 'guessed' is not one of declared, predicted",
        ),
    ],
)
def test_a_wrong_specification_says_what_is_right(specs: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        build_policies(specs, 0)


def test_a_policy_gets_its_options_and_the_seed() -> None:
    (first, second) = build_policies(("orca:max_batch=3", "queue_limit"), 7)
    assert (first.name, first.spec, first.options) == ("orca", "orca:max_batch=3", first.policy.options)
    assert first.policy.options.max_batch == 3
    assert second.spec == "queue_limit"
    options, policy = build_policy("sound", Sound, "size=4", 7)
    assert (policy.options, policy.seed) == (options, 7) == (Options(4), 7)


class NeedsTheNext(Sound):
    hookspec_range = (HOOKSPEC_VERSION + 1, HOOKSPEC_VERSION + 3)


class NeedsTheLast(Sound):
    hookspec_range = (0, HOOKSPEC_VERSION - 1)


class StatesNoRange:
    @hookimpl
    def rank_sequences(self) -> Any: ...


class StatesNonsense(Sound):
    hookspec_range = "1"  # type: ignore[assignment]


class OptionsOfAnotherKind(Sound):
    Options = dict  # type: ignore[assignment]


class ForgetsTheMark(Sound):
    def plan_iteration(self) -> Any: ...


class AnswersNothing:
    hookspec_range = (1, 1)


class MistypesItsOnlyHook:
    hookspec_range = (1, 1)

    @hookimpl
    def rank_sequence(self) -> Any: ...


class MistypesAHook(Sound):
    @hookimpl
    def on_iteration_ended(self) -> Any: ...


class CannotBeBuilt(Sound):
    def __init__(self, options: Any, seed: int) -> None:
        raise OSError("no space left")


class Exits(Sound):
    def __init__(self, options: Any, seed: int) -> None:
        raise SystemExit(3)


class RefusesTogether(Sound):
    def __init__(self, options: Any, seed: int) -> None:
        raise ValueError("size 1 does not go with seed 0")


@pytest.mark.parametrize(
    ("policy_class", "words"),
    [
        (NeedsTheNext, f"needs hookspecs {HOOKSPEC_VERSION + 1} to {HOOKSPEC_VERSION + 3}; this engine has version"),
        (NeedsTheLast, f"needs hookspecs 0 to {HOOKSPEC_VERSION - 1}"),
        (StatesNoRange, "states no range of hookspecs.*write hookspec_range"),
        (StatesNonsense, "states no range of hookspecs"),
        (OptionsOfAnotherKind, "Options is .*dict.*, not a msgspec.Struct"),
        (ForgetsTheMark, "plan_iteration is not marked with hookimpl"),
        (AnswersNothing, "answers no hook"),
        (MistypesItsOnlyHook, "rank_sequence is marked with hookimpl, but is no hook; did you mean rank_sequences"),
        (MistypesAHook, "on_iteration_ended is marked.*; did you mean on_iteration_end"),
        (CannotBeBuilt, "can't be built: .*no space left"),
        (Exits, "can't be built: SystemExit"),
        (RefusesTogether, "size 1 does not go with seed 0"),
        (len, "is <built-in function len>, not a class"),
        (None, "not a class"),
    ],
)
def test_what_is_no_policy_is_refused(policy_class: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=f"policy 'it'.*{words}"):
        build_policy("it", policy_class, "", 0)


class AnswersAHookOfLater(Sound):
    @hookimpl(optionalhook=True)
    def of_a_later_release(self) -> Any: ...


def test_a_hook_that_may_be_missing_is_no_mistake() -> None:
    build_policy("it", AnswersAHookOfLater, "", 0)


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        ("stranger_module:Policy", "import no_such_module", "can't be loaded: ModuleNotFoundError"),
        ("stranger_module:Policy", "raise RuntimeError('at import')", "at import"),
        ("stranger_module:Policy", "import sys; sys.exit(4)", "can't be loaded: SystemExit"),
        ("stranger_module:Policy", "def broken(:", "can't be loaded: SyntaxError"),
        ("stranger_module:Absent", "", "can't be loaded: AttributeError"),
        ("not a value", "", "can't be loaded"),
        ("stranger_module:Policy", "class Policy: pass", "states no range"),
    ],
)
def test_a_broken_plugin_stops_the_start_only_where_it_is_asked_for(
    value: str, code: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(__import__("sys").modules, "stranger_module", raising=False)
    install(tmp_path, monkeypatch, "stranger", {"broken": value}, code)
    assert "broken" in available_policies()
    simulated_engine(["orca", "queue_limit"])
    with pytest.raises(ConfigurationError, match=f"'broken'.*{words}"):
        build_policies(("orca", "broken"), 0)


def test_a_plugin_of_another_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "goodone", {"good": "goodone_module:Good"}, GOOD)
    (built,) = build_policies(('good:size=3,names=["a"]',), 0)
    assert (built.policy.options.size, built.policy.options.names) == (3, ["a"])
    with pytest.raises(ConfigurationError, match=r"'good' with options ''.*size"):
        build_policies(("good",), 0)
    with pytest.raises(ConfigurationError, match=r"option size=10 is wrong.*<= 9"):
        build_policies(("good:size=10",), 0)


def test_no_package_takes_the_place_of_a_policy_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "usurper", {"orca": "usurper_module:Good"}, GOOD)
    (built,) = build_policies(("orca",), 0)
    assert type(built.policy).__name__ == "Orca"
    assert [point.value for point in rivals()["orca"]] == ["usurper_module:Good"]


def test_a_name_that_two_packages_claim_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("claimer", "rival"):
        install(tmp_path / name, monkeypatch, name, {"same": f"{name}_module:Good"}, GOOD)
    with pytest.raises(ConfigurationError, match=r"'same' is offered by .*_module:Good and .*_module:Good; uninstall"):
        build_policies(("same:size=1",), 0)
