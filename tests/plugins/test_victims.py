"""`least_lost` and `lowest_class`: who gives way when memory runs short."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from core_engine.hookspecs import NoOptions, hookimpl
from core_engine.plan import Shortage
from core_engine.view import EngineView
from plugins.least_lost import LeastLost
from plugins.lowest_class import LowestClass
from tests.plugins.runs import Run, cases, make_request, modestly, run_on
from tests.simulation.support import Machine, Workload


class Asked:
    """Lets a policy of victims answer, and keeps what it saw: what each of the running had to lose, and how urgent."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.shortages: dict[int, dict[int, tuple[int, int, int]]] = {}  # iteration -> id -> loss, priority, blocks

    @hookimpl
    def choose_victims(self, shortage: Shortage, view: EngineView) -> Any:
        if shortage.kind == "memory":
            self.shortages[view.iteration] = {
                s.id: (s.num_computed_tokens - s.num_shared_blocks * view.block_size, s.priority, s.num_private_blocks)
                for s in view.running
            }
        return self.inner.choose_victims(shortage, view)


def until_preempted(run: Run) -> list[str]:
    while not run.records or not run.records[-1].preempted:
        run.step()
    return [run.names[i] for i in run.records[-1].preempted]


def test_the_cheapest_to_recompute_goes_and_never_the_oldest() -> None:
    run = Run("least_lost", "paged:headroom=0", num_blocks=12, block_size=8)
    run.submit(make_request("oldest", 4, 60), make_request("long", 40, 30), make_request("short", 9, 30))
    run.step()
    run.submit(make_request("newest", 17, 30))
    assert until_preempted(run) == ["short"]
    run = Run("last_in", "paged:headroom=0", num_blocks=12, block_size=8)
    run.submit(make_request("oldest", 4, 60), make_request("long", 40, 30), make_request("short", 9, 30))
    run.step()
    run.submit(make_request("newest", 17, 30))
    assert until_preempted(run) == ["newest"]


def test_blocks_that_others_hold_are_no_loss() -> None:
    run = Run("least_lost", "paged:headroom=0", num_blocks=15, block_size=8)
    run.submit(make_request("alone", 8, 60), make_request("single", 24, 60), make_request("twins", 48, 60, n=2))
    # The first twin has computed the most, but the blocks of the prompt are held by the other too.
    assert until_preempted(run) == ["twins"]


def test_the_least_urgent_goes_of_equals_the_last() -> None:
    run = Run("lowest_class", "paged:headroom=0", num_blocks=12, block_size=8)
    priorities = {"oldest": 50, "batch-0": 10, "batch-1": 10, "urgent": -5}
    run.submit(*(make_request(name, 10, 40, priority=priority) for name, priority in priorities.items()))
    assert until_preempted(run) == ["batch-1"]
    assert until_preempted(run) == ["batch-1"]


def test_neither_has_an_opinion_on_rank() -> None:
    shortage = Shortage(kind="rank", num_sequences=1, waiting_ids=(3,))
    view: Any = None
    assert LeastLost(NoOptions(), 0).choose_victims(shortage, view) is None
    assert LowestClass(NoOptions(), 0).choose_victims(shortage, view) is None


def spared(run: Run, asked: Asked) -> Any:
    """(of the victims, of those who kept running) at each shortage, the anchor left out: loss, priority, blocks."""
    for record in run.records:
        seen = asked.shortages.get(record.iteration)
        if seen is not None:
            anchor = min(seen)
            victims = {i for i, cause in record.preempted.items() if cause == "memory"}
            yield [seen[i] for i in victims], [seen[i] for i in seen if i != anchor and i not in victims]


@modestly
@given(cases)
def test_nobody_with_less_to_lose_is_left_running(case: tuple[Machine, Workload]) -> None:
    machine, workload = case
    asked = Asked(LeastLost(NoOptions(), 0))
    run = run_on(machine, asked, "paged:headroom=0").all_of(workload)
    for victims, others in spared(run, asked):
        for loss, _, blocks in others:
            assert not blocks or all(loss >= victim for victim, _, _ in victims)


@modestly
@given(cases)
def test_nobody_less_urgent_is_left_running(case: tuple[Machine, Workload]) -> None:
    machine, workload = case
    asked = Asked(LowestClass(NoOptions(), 0))
    run = run_on(machine, asked, "paged:headroom=0").all_of(workload)
    for victims, others in spared(run, asked):
        for _, priority, blocks in others:
            assert not blocks or all(priority <= victim for _, victim, _ in victims)
