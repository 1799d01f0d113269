"""core_engine/hookspecs.py is the manual for authors of policies, so it must be complete."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pytest

from core_engine.hookspecs import PROJECT, HookSpecs
from tests.contracts.tree import ROOT, sources

HOOKS = {name: member for name, member in vars(HookSpecs).items() if hasattr(member, f"{PROJECT}_spec")}


def test_everything_public_there_is_a_hook() -> None:
    assert set(HOOKS) == {name for name in vars(HookSpecs) if not name.startswith("_")}


@pytest.mark.parametrize("name", sorted(HOOKS))
def test_a_hook_says_how_it_is_asked_and_when(name: str) -> None:
    text = inspect.getdoc(HOOKS[name]) or ""
    contract = re.match(r"(Ask one|Ask all|Tell), (\w.*?): \w", text, re.DOTALL)
    assert contract, f"{name} begins with its kind and the moment it is called: {text[:60]!r}"


@pytest.mark.parametrize("name", sorted(HOOKS))
def test_a_hook_that_is_asked_says_what_becomes_of_the_answer(name: str) -> None:
    text = inspect.getdoc(HOOKS[name]) or ""
    if not text.startswith("Tell"):
        assert re.search(r"\bCheck:\s|\bClamped to\s|\bpassed over\b", text), f"{name} doesn't name the engine's check"


@pytest.mark.parametrize(("name", "hook"), sorted(HOOKS.items()))
def test_a_hook_is_typed(name: str, hook: Callable[..., object]) -> None:
    signature = inspect.signature(hook)
    _, *arguments = signature.parameters.values()
    assert all(argument.annotation is not argument.empty for argument in arguments)
    assert signature.return_annotation is not signature.empty


@pytest.mark.parametrize("name", sorted(HOOKS))
def test_a_hook_is_implemented_in_a_test(name: str) -> None:
    assert any(f"def {name}(" in (ROOT / source).read_text() for source in sources("tests"))
