"""What the conformance kit found: checks, figures, and the counter-example of the first check that failed."""

from __future__ import annotations

import msgspec

from core_engine.testkit.cost import Cost
from core_engine.testkit.trial import Finding
from core_engine.testkit.workloads import Workload


class CounterExample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The smallest case found in which a policy fails; `replay` runs it again."""

    policy: str
    seed: int
    finding: Finding
    workload: Workload | None = None
    num_sequences: int | None = None  # of a policy that is slow

    def to_json(self) -> bytes:
        """As it is kept in a file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    @classmethod
    def from_json(cls, text: bytes) -> CounterExample:
        """Out of a file; raises msgspec.MsgspecError where that holds none."""
        return msgspec.json.decode(text, type=cls)


class Check(msgspec.Struct, frozen=True):
    """One thing that was checked, and what was found."""

    name: str
    passed: bool
    summary: str


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """How a request fared in an endless flood of others, in iterations.

    The engine's own bound is `max_wait_iterations` plus, for each overdue request ahead, those of the longest
    sequence; the policy's own promise is read likewise. `rescues` counts, by rule, how often the engine had to step in.
    """

    flood: str
    longest_wait_iterations: int
    answered_after_iterations: int
    max_wait_iterations: int
    promised_wait_iterations: int | None
    rescues: dict[str, int]


class Report(msgspec.Struct, kw_only=True):
    """What a run of the kit found; it ends with the first check that fails.

    `rescues` counts over all random workloads how often a rule of the engine had to step in: `anchor` (its
    oldest sequence had stood still), `gates` (nothing ran, and gates held the first in order), `overdue` (a
    request had waited too long), `held` (results had been held back too long).
    """

    policy: str
    checks: list[Check] = []
    waits: list[Wait] = []
    costs: list[Cost] = []
    rescues: dict[str, int] = {}
    counter_example: CounterExample | None = None

    @property
    def passed(self) -> bool:
        """Whether the policy passed every check."""
        return all(check.passed for check in self.checks)

    def __str__(self) -> str:
        lines = [f"{self.policy}: {'passed' if self.passed else 'FAILED'}"]
        lines += (f"  {'ok  ' if check.passed else 'FAIL'} {check.name}: {check.summary}" for check in self.checks)
        if self.counter_example is not None:
            lines += ["counter-example:", self.counter_example.to_json().decode().rstrip()]
        return "\n".join(lines)
