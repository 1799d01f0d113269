"""Swapping: another set of policies between two iterations, on probation first, with the way back open."""

from __future__ import annotations

import logging
from collections import deque
from typing import Literal

import msgspec

from core_engine.deciding import ask_reservation
from core_engine.errors import ConfigurationError
from core_engine.messages import PolicyEvent, PolicyInfo
from core_engine.objectives import Attainment, clearly_worse
from core_engine.panel import Panel
from core_engine.policy_set import PolicySet
from core_engine.selection import NamedPolicy, build_policies
from core_engine.state import EngineState

_log = logging.getLogger("jitney.policies")
_FIXED_AT_START = ("create_block_allocator",)
_HISTORY = 256


class RestartNeeded(ConfigurationError):
    """A swap names a policy whose part is fixed at start."""


class Swapping:
    """Builds, adopts, watches and takes back sets of policies; keeps the history."""

    def __init__(self, state: EngineState, panel: Panel, attainment: Attainment, seed: int) -> None:
        self._state = state
        self._panel = panel
        self._attainment = attainment
        self._seed = seed
        self._previous: PolicySet | None = None  # to go back to, during probation
        self._before: list[bool] = []
        self._adopted_iteration = 0
        self._faults_at_adoption = 0
        self._fixed = {hook: self._owner(hook) for hook in _FIXED_AT_START}
        self.history: deque[PolicyEvent] = deque(maxlen=_HISTORY)
        self.events: list[PolicyEvent] = []  # not told yet
        panel.on_retirement = self._retired

    @property
    def on_probation(self) -> bool:
        """Whether the set in force may still be taken back."""
        return self._previous is not None

    def build(self, specs: tuple[str, ...]) -> PolicySet:
        """The set that these specifications name, without touching the running one (safe on any thread).

        A policy that runs already with just these options keeps its instance. Raises ConfigurationError;
        RestartNeeded where one would take over, or change, what is fixed at start.
        """
        running = {p.spec: p for p in [*self._fixed.values(), *self._panel.set.policies] if p.spec}
        fresh = iter(build_policies(tuple(spec for spec in specs if spec not in running), self._seed))
        policies = [running[spec] if spec in running else next(fresh) for spec in specs]
        if len({policy.name for policy in policies}) < len(policies):
            raise ConfigurationError("a policy is named twice; give all its options at once")
        candidate = PolicySet(policies, self._panel.set.defaults)
        for hook, owner in self._fixed.items():
            self._check_fixed(hook, owner, candidate)
        return candidate

    def _owner(self, hook: str) -> NamedPolicy:
        first = self._panel.first(hook)
        assert first is not None, "a default answers every question"
        return next(member for member in self._panel.set.members if member.name == first.policy)

    def _check_fixed(self, hook: str, owner: NamedPolicy, candidate: PolicySet) -> None:
        """Whoever answered a hook at start stays in charge of it; others may be named for their other hooks."""
        first = True
        for policy in candidate.policies:
            hooks = candidate.hooks_of(policy.name)
            if hook not in hooks:
                continue
            has_more = bool(set(hooks) - set(_FIXED_AT_START))
            if policy.name != owner.name and (first or not has_more):
                raise RestartNeeded(
                    f"policy {policy.name!r} would take {hook} over from {owner.name!r}, which is fixed at start: "
                    "leave it out, or restart with it"
                )
            if policy.name == owner.name and policy.options != owner.options and not has_more:
                raise RestartNeeded(f"the options of policy {policy.name!r} are fixed at start: restart with others")
            first = False

    def adopt(self, candidate: PolicySet) -> PolicyEvent:
        """Put the set in force, on probation. A set that is still on probation itself is not gone back to."""
        recent = self._attainment.start_over()
        if self._previous is None:
            self._previous = self._panel.set
            self._before = recent
        self._panel.retires = False
        self._faults_at_adoption = self._num_faults(candidate)
        self._adopted_iteration = self._state.iteration
        self._change(candidate)
        return self._note("adopted", "")

    def watch(self) -> bool:
        """At the end of an iteration: go back, confirm, or wait on; whether it went back."""
        if self._previous is None:
            return False
        config = self._state.config
        faults = self._num_faults(self._panel.set) - self._faults_at_adoption
        if faults > config.max_policy_faults:
            self._roll_back(f"{faults} faults")
        elif clearly_worse(self._before, list(self._attainment.recent)):
            self._roll_back("objectives are met clearly less often than before")
        elif self._state.iteration - self._adopted_iteration >= config.probation_iterations:
            self._previous = None
            self._panel.retires = True
            self._note("confirmed", f"{config.probation_iterations} iterations with {faults} faults")
            return False
        return self._previous is None

    def describe(self) -> list[PolicyInfo]:
        """Every policy in force, with its options, faults and decision time so far."""
        policies = self._panel.set
        configured = [policy.name for policy in policies.policies]
        return [
            PolicyInfo(
                name=member.name,
                spec=member.spec or member.name,
                options=msgspec.to_builtins(member.options) if member.options is not None else {},
                is_default=member.name not in configured,
                hooks=policies.hooks_of(member.name),
                faults=self._panel.total_faults.get(member.name, 0),
                decision_seconds=sum(
                    seconds
                    for key, seconds in self._panel.total_seconds.items()
                    if key.partition("/")[2] == member.name
                ),
                promised_wait_iterations=getattr(member.policy, "promised_wait_iterations", None),
            )
            for member in policies.members
        ]

    def take_events(self) -> list[PolicyEvent]:
        """The events since the last call."""
        events, self.events = self.events, []
        return events

    def _num_faults(self, policies: PolicySet) -> int:
        return sum(self._panel.total_faults.get(policy.name, 0) for policy in policies.policies)

    def _change(self, policies: PolicySet) -> None:
        old = self._panel.set
        before, after = {id(m.policy) for m in old.members}, {id(m.policy) for m in policies.members}
        leaving = frozenset(m.name for m in old.members if id(m.policy) not in after)
        arriving = frozenset(m.name for m in policies.members if id(m.policy) not in before)
        self._panel.tell("on_retire", self._state, only=leaving)
        self._panel.adopt(policies)
        self._panel.tell("on_adopt", self._state, only=arriving)
        self._renew_reservations()

    def _renew_reservations(self) -> None:
        """Return what is reserved and unused, and ask anew, oldest first, for what is free.

        Whoever boarded because overdue keeps the blocks up to its next token.
        """
        state, pool = self._state, self._state.pool
        for sequence in state.running:
            needed = sequence.num_tokens if sequence.id in state.protected else sequence.num_computed_tokens
            pool.shrink(sequence, pool.blocks_for(needed))
        for sequence in state.running:
            wanted = ask_reservation(self._panel, state, sequence) - len(sequence.block_table)
            pool.grow(sequence, min(wanted, pool.num_free_blocks))

    def _roll_back(self, reason: str) -> None:
        assert self._previous is not None
        previous, self._previous = self._previous, None
        self._panel.retires = True
        self._change(previous)
        self._attainment.recall(self._before)
        self._note("rolled_back", reason)

    def _retired(self, policy: str, reason: str) -> None:
        self._note("retired", f"{policy}: {reason}")

    def _note(self, kind: Literal["adopted", "confirmed", "rolled_back", "retired"], reason: str) -> PolicyEvent:
        event = PolicyEvent(
            kind=kind,
            version=self._panel.version,
            iteration=self._state.iteration,
            policies=tuple(policy.spec or policy.name for policy in self._panel.set.policies),
            reason=reason,
        )
        names = ", ".join(event.policies) or "defaults"
        _log.info("policies %s, version %d: %s%s", kind, event.version, names, reason and f" ({reason})")
        self.history.append(event)
        self.events.append(event)
        return event
