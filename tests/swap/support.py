"""An engine whose policies are swapped while it runs."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, field
from typing import Any

from core_engine.engine import Engine
from core_engine.hookspecs import hookimpl
from core_engine.lab.simulate import Recorder
from core_engine.messages import IterationOutput, PolicyEvent
from core_engine.plan import IterationRecord
from core_engine.policy_set import PolicySet
from core_engine.request import Request, SamplingParams
from core_engine.selection import NamedPolicy, hooks_of

FIXED = "create_block_allocator"
OURS = importlib.metadata.distribution("jitney").entry_points.select(group="jitney.policies")
WRITES_FILES = {"record"}
NAMES = sorted(p.name for p in OURS if FIXED not in hooks_of(p.load()) and p.name not in WRITES_FILES)
SPECS = [
    *NAMES,
    "orca:max_batch=2,output=predicted",
    "paged:headroom=0",
    "paged:headroom=3",
    "static_batch:batch_size=2,reserve=max",
]


def request(name: str, prompt: int = 10, output: int = 8, **fields: Any) -> Request:
    sampling = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True)
    return Request(id=name, model="simulated", prompt_token_ids=list(range(prompt)), sampling=sampling, **fields)


def recorder() -> NamedPolicy:
    """A Recorder that a swap keeps by naming its specification, `recorder`."""
    return NamedPolicy("recorder", Recorder(), spec="recorder")


def policy_set(engine: Engine, *policies: NamedPolicy) -> PolicySet:
    """Ready-made policies as a set to be adopted, with the defaults that are in force."""
    return PolicySet(list(policies), engine._panel.set.defaults)


def in_force(engine: Engine) -> dict[str, Any]:
    """The policy objects by name."""
    return {member.name: member.policy for member in engine._panel.set.members}


@dataclass
class Swapped:
    """An engine that adopts other policies before certain of its iterations."""

    engine: Engine
    sets: dict[int, Any]  # iteration -> specifications or a PolicySet
    outputs: list[IterationOutput] = field(default_factory=list)
    adopted: list[PolicyEvent] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)  # in force when each iteration began

    @property
    def has_work(self) -> bool:
        return self.engine.has_work

    def submit(self, request: Request) -> None:
        self.engine.submit(request)

    def cancel(self, request_id: str) -> None:
        self.engine.cancel(request_id)

    def step(self) -> IterationOutput:
        chosen = self.sets.get(len(self.outputs) + 1)
        if chosen is not None:
            built = chosen if isinstance(chosen, PolicySet) else self.engine.build_policies(tuple(chosen))
            self.adopted.append(self.engine.adopt_policies(built))
        self.versions.append(self.engine._panel.version)
        output = self.engine.step()
        self.outputs.append(output)
        return output

    def events(self) -> list[PolicyEvent]:
        return [event for output in self.outputs for event in output.policy_events]


class Told:
    """Ranks by arrival and writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    @hookimpl
    def rank_sequences(self) -> Any:
        return (), set()

    @hookimpl
    def on_adopt(self) -> None:
        self.told.append("adopt")

    @hookimpl
    def on_retire(self) -> None:
        self.told.append("retire")


class RaisesAfter:
    """Ranks by arrival for so many iterations, then raises."""

    def __init__(self, iterations: int) -> None:
        self.left = iterations

    @hookimpl
    def rank_sequences(self) -> Any:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("worn out")
        return (), set()


class Listens:
    """Keeps the records themselves."""

    def __init__(self) -> None:
        self.records: list[IterationRecord] = []

    @hookimpl
    def on_iteration_end(self, record: IterationRecord) -> None:
        self.records.append(record)
