"""PolicySet: policies in the order they are asked, indexed by hook; it never changes once built."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pluggy

from core_engine.errors import ConfigurationError
from core_engine.hookspecs import PROJECT, HookSpecs
from core_engine.selection import NamedPolicy


class Implementation(NamedTuple):
    """One policy's answer to one hook; `call` takes all arguments of the hook, by position."""

    policy: str
    instance: Any
    call: Callable[..., Any]
    key: str  # "hook/policy", for the decision times
    is_default: bool


class PolicySet:
    """The policies of a configuration, with the defaults that none of them replaces behind them.

    Raises ConfigurationError for a policy that doesn't fit the hooks: it implements one that doesn't
    exist, or names an argument that the hook doesn't have.
    """

    def __init__(self, policies: list[NamedPolicy], defaults: list[NamedPolicy]) -> None:
        named = {policy.name for policy in policies}
        self.policies = list(policies)
        self.defaults = list(defaults)
        self.members = [*policies, *(default for default in defaults if default.name not in named)]
        self.hooks: dict[str, list[Implementation]] = {name: [] for name in _HOOK_ARGUMENTS}
        for member in self.members:
            for hook, implementation in self._find(member):
                self.hooks[hook].append(implementation)

    def without(self, name: str) -> PolicySet:
        """The same set less one policy."""
        return PolicySet([policy for policy in self.policies if policy.name != name], self.defaults)

    def names(self) -> dict[str, list[str]]:
        """Who answers each hook that anybody answers, in the order asked."""
        return {
            hook: [i.policy for i in implementations] for hook, implementations in self.hooks.items() if implementations
        }

    def hooks_of(self, name: str) -> list[str]:
        """The hooks that the policy answers."""
        return [hook for hook, implementations in self.hooks.items() if name in [i.policy for i in implementations]]

    def _find(self, member: NamedPolicy) -> Iterator[tuple[str, Implementation]]:
        for hook, arguments in _implemented(type(member.policy), member):
            call = _by_position(getattr(member.policy, hook), _HOOK_ARGUMENTS[hook], arguments)
            key = f"{hook}/{member.name}"
            yield hook, Implementation(member.name, member.policy, call, key, is_built_in(member.policy))


def _implemented(policy_class: type, member: NamedPolicy) -> list[tuple[str, tuple[str, ...]]]:
    """The hooks of a class and the arguments that it names of each, as pluggy finds them on one of its objects."""
    found = _known.get(policy_class)
    if found is None:
        manager = pluggy.PluginManager(PROJECT)
        manager.add_hookspecs(HookSpecs)
        try:
            manager.register(member.policy, name=member.name)
            manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise ConfigurationError(f"policy {member.name!r} does not fit the hooks: {error}") from error
        callers = manager.get_hookcallers(member.policy) or []
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        found = _known[policy_class] = [(caller.name, tuple(caller.get_hookimpls()[0].argnames)) for caller in callers]
    return found


_MOST_KNOWN = 256
_known: dict[type, list[tuple[str, tuple[str, ...]]]] = {}  # finding them takes longer than an iteration


def is_built_in(policy: Any) -> bool:
    """Whether it is one of the engine's own, with whatever options: the last resort, which must be trusted."""
    return type(policy).__module__ == "core_engine.defaults"


_HOOK_ARGUMENTS: dict[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(function).parameters)[1:]
    for name, function in vars(HookSpecs).items()
    if not name.startswith("_")
}


def _by_position(function: Callable[..., Any], wanted: tuple[str, ...], named: tuple[str, ...]) -> Callable[..., Any]:
    """The function as one that takes all arguments of the hook, although it names only some."""
    if tuple(named) == wanted:
        return function
    positions = [wanted.index(argument) for argument in named]

    def call(*arguments: Any) -> Any:
        return function(**{name: arguments[i] for name, i in zip(named, positions, strict=True)})

    return call
