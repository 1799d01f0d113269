"""The panel asks policies one by one, times and guards each, checks every answer and falls back.

pluggy finds and validates the implementations; it does not call them, since its own call stops at
the first exception and names no culprit.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pluggy

from core_engine.clock import Clock
from core_engine.errors import ConfigurationError
from core_engine.hookspecs import PROJECT, HookSpecs
from core_engine.selection import NamedPolicy

_log = logging.getLogger("jitney.policies")


class BadAnswer(Exception):
    """A policy's answer fails the engine's check; the text says how."""


class PolicyFault(Exception):
    """In strict mode: a policy raised or answered wrongly."""


class _Implementation(NamedTuple):
    policy: str
    call: Callable[..., Any]  # takes all arguments of the hook, by position
    key: str  # "hook/policy", for the decision times
    is_default: bool


class Panel:
    """The policies in force, asked in configuration order with the defaults last.

    A policy that faults more than `max_faults` times within `window` iterations is retired; the
    defaults never are. `faults` and `decision_seconds` grow until `drain_counters` takes them.
    """

    def __init__(
        self,
        policies: list[NamedPolicy],
        defaults: list[NamedPolicy],
        clock: Clock,
        *,
        strict: bool = False,
        max_faults: int = 3,
        window: int = 1000,
    ) -> None:
        named = {policy.name for policy in policies}
        self._members = [*policies, *(d for d in defaults if d.name not in named)]
        self._default_names = {default.name for default in defaults}
        self._clock = clock
        self._strict = strict
        self._max_faults = max_faults
        self._window = window
        self._fault_iterations: dict[str, deque[int]] = {}
        self.version = 1
        self.iteration = 0
        self.num_faults = 0
        self.faults: dict[str, int] = {}
        self.decision_seconds: dict[str, float] = {}
        self.retired: list[str] = []
        self._hooks = self._index()

    def describe(self) -> dict[str, list[str]]:
        """The names of who answers each hook, in the order asked."""
        return {hook: [i.policy for i in implementations] for hook, implementations in self._hooks.items()}

    def listens(self, hook: str) -> bool:
        """Whether anybody implements the hook."""
        return bool(self._hooks[hook])

    def implementations(self, hook: str) -> list[tuple[str, Any]]:
        """(name, policy object) of everyone who answers the hook, in the order asked."""
        objects = {member.name: member.policy for member in self._members}
        return [(i.policy, objects[i.policy]) for i in self._hooks[hook]]

    def ask_one(self, hook: str, check: Callable[[Any], Any], *arguments: Any) -> Any:
        """The first answer that is not None and passes `check`, which returns it repaired; else None.

        `check` raises BadAnswer. A raise or a bad answer is a fault, and the next is asked.
        """
        for implementation in self._hooks[hook]:
            answer = self._ask(implementation, check, arguments)
            if answer is not None:
                return answer
        return None

    def ask_all(self, hook: str, check: Callable[[Any], Any], *arguments: Any) -> list[tuple[str, Any]]:
        """Every answer that is not None and passes the check, with the name of its policy."""
        answers = []
        for implementation in self._hooks[hook]:
            answer = self._ask(implementation, check, arguments)
            if answer is not None:
                answers.append((implementation.policy, answer))
        return answers

    def asking(self, hook: str) -> Iterator[tuple[Any, bool, Callable[..., Any]]]:
        """Everyone who answers the hook: (policy object, whether a default, ask).

        `ask(check, *arguments)` asks just it.
        """
        objects = {member.name: member.policy for member in self._members}
        for implementation in self._hooks[hook]:

            def ask(
                check: Callable[[Any], Any], *arguments: Any, implementation: _Implementation = implementation
            ) -> Any:
                return self._ask(implementation, check, arguments)

            yield objects[implementation.policy], implementation.is_default, ask

    def tell(self, hook: str, *arguments: Any) -> None:
        """Let everyone hear it; whoever raises is isolated."""
        for implementation in self._hooks[hook]:
            self._ask(implementation, _anything, arguments)

    def fault(self, policy: str, reason: str) -> None:
        """Count a fault of that policy, and retire it when there are too many."""
        _log.warning("policy %s: %s", policy, reason)
        self.num_faults += 1
        self.faults[policy] = self.faults.get(policy, 0) + 1
        if self._strict:
            raise PolicyFault(f"policy {policy}: {reason}")
        recent = self._fault_iterations.setdefault(policy, deque())
        recent.append(self.iteration)
        while recent[0] <= self.iteration - self._window:
            recent.popleft()
        if len(recent) > self._max_faults and policy not in self._default_names and policy not in self.retired:
            self._retire(policy, len(recent))

    def drain_counters(self) -> tuple[dict[str, int], dict[str, float]]:
        """(faults by policy, seconds by "hook/policy") since the last call."""
        drained = self.faults, self.decision_seconds
        self.faults, self.decision_seconds = {}, {}
        return drained

    def _ask(self, implementation: _Implementation, check: Callable[[Any], Any], arguments: tuple[Any, ...]) -> Any:
        started = self._clock.now()
        try:
            answer = implementation.call(*arguments)
            return None if answer is None else check(answer)
        except BadAnswer as error:
            self.fault(implementation.policy, f"{implementation.key.partition('/')[0]}: {error}")
        except Exception as error:
            _log.debug("traceback of policy %s", implementation.policy, exc_info=True)
            self.fault(implementation.policy, f"{implementation.key.partition('/')[0]} raised {error!r}")
        finally:
            key = implementation.key
            spent = self._clock.now() - started
            self.decision_seconds[key] = self.decision_seconds.get(key, 0.0) + spent
        return None

    def _retire(self, policy: str, faults: int) -> None:
        _log.error("policy %s is retired after %d faults in %d iterations", policy, faults, self._window)
        self.retired.append(policy)
        self.version += 1
        self._members = [member for member in self._members if member.name != policy]
        self._hooks = self._index()

    def _index(self) -> dict[str, list[_Implementation]]:
        hooks: dict[str, list[_Implementation]] = {name: [] for name in _hook_arguments()}
        for name, policy in self._members:
            for hook, implementation in self._find(name, policy):
                hooks[hook].append(implementation)
        return hooks

    def _find(self, name: str, policy: Any) -> Iterator[tuple[str, _Implementation]]:
        manager = pluggy.PluginManager(PROJECT)
        manager.add_hookspecs(HookSpecs)
        try:
            manager.register(policy, name=name)
            manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise ConfigurationError(f"policy {name!r} does not fit the hooks: {error}") from error
        for caller in manager.get_hookcallers(policy) or []:
            implementation = caller.get_hookimpls()[0]
            wanted = _hook_arguments()[caller.name]
            call = _by_position(implementation.function, wanted, implementation.argnames)
            is_default = name in self._default_names
            yield caller.name, _Implementation(name, call, f"{caller.name}/{name}", is_default)


def _anything(answer: Any) -> Any:
    return answer


def _hook_arguments() -> dict[str, tuple[str, ...]]:
    """The arguments of every hook, in the order of its specification."""
    return {
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
