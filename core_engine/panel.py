"""The panel asks policies one by one, times and guards each, checks every answer and falls back.

pluggy's own call is not used: it stops at the first exception and names no culprit.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from core_engine.clock import Clock
from core_engine.policy_set import Implementation, PolicySet, is_built_in

_log = logging.getLogger("jitney.policies")


class BadAnswer(Exception):
    """A policy's answer fails the engine's check; the text says how."""


class PolicyFault(Exception):
    """In strict mode: a policy raised or answered wrongly."""


class Panel:
    """The policies in force, asked in configuration order with the defaults last.

    A policy that faults more than `max_faults` times within `window` iterations is retired; the
    defaults never are. `on_retirement(policy, reason)` hears of it. `faults` and `decision_seconds`
    grow until `drain_counters` takes them; `total_faults` and `total_seconds` never shrink.
    """

    def __init__(
        self,
        policies: PolicySet,
        clock: Clock,
        *,
        strict: bool = False,
        max_faults: int = 3,
        window: int = 1000,
    ) -> None:
        self.set = policies
        self.version = 1
        self.iteration = 0
        self.num_faults = 0
        self.faults: dict[str, int] = {}
        self.decision_seconds: dict[str, float] = {}
        self.total_faults: dict[str, int] = {}
        self.total_seconds: dict[str, float] = {}
        self.on_retirement: Callable[[str, str], None] = lambda policy, reason: None
        self.retires = True  # False while a probation watches instead
        self._clock = clock
        self._strict = strict
        self._max_faults = max_faults
        self._window = window
        self._fault_iterations: dict[str, deque[int]] = {}

    def adopt(self, policies: PolicySet) -> None:
        """From now on ask these; who was there before keeps its record of faults."""
        self.set = policies
        self.version += 1

    def listens(self, hook: str) -> bool:
        """Whether anybody implements the hook."""
        return bool(self.set.hooks[hook])

    def first(self, hook: str) -> Implementation | None:
        """Whoever is asked first."""
        return next(iter(self.set.hooks[hook]), None)

    def ask_one(self, hook: str, check: Callable[[Any], Any], *arguments: Any) -> Any:
        """The first answer that is not None and passes `check`, which returns it repaired; else None.

        `check` raises BadAnswer. A raise or a bad answer is a fault, and the next is asked.
        """
        for implementation in self.set.hooks[hook]:
            answer = self._ask(implementation, check, arguments)
            if answer is not None:
                return answer
        return None

    def ask_all(self, hook: str, check: Callable[[Any], Any], *arguments: Any) -> list[tuple[str, Any]]:
        """Every answer that is not None and passes the check, with the name of its policy."""
        answers = []
        for implementation in self.set.hooks[hook]:
            answer = self._ask(implementation, check, arguments)
            if answer is not None:
                answers.append((implementation.policy, answer))
        return answers

    def asking(self, hook: str) -> Iterator[tuple[Any, bool, Callable[..., Any]]]:
        """Everyone who answers the hook: (policy object, whether a default, ask).

        `ask(check, *arguments)` asks just it.
        """
        for implementation in self.set.hooks[hook]:

            def ask(
                check: Callable[[Any], Any], *arguments: Any, implementation: Implementation = implementation
            ) -> Any:
                return self._ask(implementation, check, arguments)

            yield implementation.instance, implementation.is_default, ask

    def tell(self, hook: str, *arguments: Any, only: frozenset[str] | None = None) -> None:
        """Let everyone, or only those named, hear it; whoever raises is isolated."""
        for implementation in self.set.hooks[hook]:
            if only is None or implementation.policy in only:
                self._ask(implementation, _anything, arguments)

    def fault(self, policy: str, reason: str) -> None:
        """Count a fault of that policy, and retire it when there are too many."""
        _log.warning("policy %s: %s", policy, reason)
        self.num_faults += 1
        self.faults[policy] = self.faults.get(policy, 0) + 1
        self.total_faults[policy] = self.total_faults.get(policy, 0) + 1
        if self._strict:
            raise PolicyFault(f"policy {policy}: {reason}")
        recent = self._fault_iterations.setdefault(policy, deque())
        recent.append(self.iteration)
        while recent[0] <= self.iteration - self._window:
            recent.popleft()
        may_go = any(member.name == policy and not is_built_in(member.policy) for member in self.set.policies)
        if len(recent) > self._max_faults and self.retires and may_go:
            self._retire(policy, f"{len(recent)} faults in {self._window} iterations, the last: {reason}")

    def drain_counters(self) -> tuple[dict[str, int], dict[str, float]]:
        """(faults by policy, seconds by "hook/policy") since the last call."""
        drained = self.faults, self.decision_seconds
        for key, seconds in self.decision_seconds.items():
            self.total_seconds[key] = self.total_seconds.get(key, 0.0) + seconds
        self.faults, self.decision_seconds = {}, {}
        return drained

    def _ask(self, implementation: Implementation, check: Callable[[Any], Any], arguments: tuple[Any, ...]) -> Any:
        started = self._clock.now()
        try:
            answer = implementation.call(*arguments)
            return None if answer is None else check(answer)
        except PolicyFault:
            raise  # of another policy, asked on the way: strict mode ends at the culprit
        except BadAnswer as error:
            self.fault(implementation.policy, f"{implementation.key.partition('/')[0]}: {error}")
        except (Exception, SystemExit) as error:
            _log.debug("traceback of policy %s", implementation.policy, exc_info=True)
            self.fault(implementation.policy, f"{implementation.key.partition('/')[0]} raised {error!r}")
        finally:
            key = implementation.key
            spent = self._clock.now() - started
            self.decision_seconds[key] = self.decision_seconds.get(key, 0.0) + spent
        return None

    def _retire(self, policy: str, reason: str) -> None:
        _log.error("policy %s is retired: %s", policy, reason)
        self.adopt(self.set.without(policy))
        self.on_retirement(policy, reason)


def _anything(answer: Any) -> Any:
    return answer
