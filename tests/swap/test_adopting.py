"""What a swap does at the moment it happens: who stays, who is told, what is released and asked for anew."""

from __future__ import annotations

from typing import Any

import pytest

from core_engine.engine import Engine
from core_engine.errors import ConfigurationError
from core_engine.hookspecs import hookimpl
from core_engine.kv import FreeListAllocator, PrefixCachingAllocator
from core_engine.selection import NamedPolicy
from core_engine.swapping import RestartNeeded
from core_engine.testkit import simulated_engine
from core_engine.view import SequenceView
from tests.swap.support import Told, in_force, policy_set, request


def step_until(engine: Engine, reached: Any, at_most: int = 100) -> list[Any]:
    outputs = []
    while not reached(engine):
        outputs.append(engine.step())
        assert len(outputs) < at_most
    return outputs


def taken_back(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """One iteration, after which objectives are said to be missed."""
    with monkeypatch.context() as patched:
        patched.setattr("core_engine.swapping.clearly_worse", lambda before, after: True)
        output = engine.step()
    assert [event.kind for event in output.policy_events][-1:] == ["rolled_back"]


class Reserves:
    """Asks for so many blocks at each start, and notes whom it was asked for."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.asked: list[int] = []

    @hookimpl
    def reserve_blocks(self, sequence: SequenceView) -> int:
        self.asked.append(sequence.id)
        return self.blocks


def reserves(blocks: int) -> NamedPolicy:
    return NamedPolicy("reserves", Reserves(blocks))


def test_a_policy_with_the_same_options_keeps_its_object() -> None:
    engine, _ = simulated_engine(["orca:max_batch=3", "queue_gate"])
    before = in_force(engine)
    engine.adopt_policies(engine.build_policies(("orca:max_batch=3", "fair_share")))
    assert in_force(engine)["orca"] is before["orca"]
    assert "queue_gate" not in in_force(engine)
    engine.adopt_policies(engine.build_policies(("orca:max_batch=4",)))
    assert in_force(engine)["orca"] is not before["orca"]
    engine.adopt_policies(engine.build_policies(()))
    assert set(in_force(engine)) == set(in_force(simulated_engine([])[0]))


def test_the_order_of_a_swap_is_the_order_of_asking() -> None:
    engine, _ = simulated_engine(["shortest_first", "fair_share"])
    assert engine.info.policies["rank_sequences"] == ["shortest_first", "fair_share", "fcfs"]
    engine.adopt_policies(engine.build_policies(("fair_share", "shortest_first")))
    assert engine.info.policies["rank_sequences"] == ["fair_share", "shortest_first", "fcfs"]
    assert engine.info.policy_version == 2


def test_arriving_and_leaving_are_told_again_and_again() -> None:
    told = NamedPolicy("told", Told())
    staying = NamedPolicy("staying", Told())
    engine, _ = simulated_engine([staying])
    for _ in range(2):
        engine.adopt_policies(policy_set(engine, told, staying))
        engine.adopt_policies(policy_set(engine, staying))
    assert told.policy.told == ["adopt", "retire"] * 2
    assert staying.policy.told == []


def test_another_object_under_the_same_name_is_another_policy() -> None:
    first, second = NamedPolicy("told", Told()), NamedPolicy("told", Told())
    engine, _ = simulated_engine([first])
    engine.adopt_policies(policy_set(engine, second))
    assert (first.policy.told, second.policy.told) == (["retire"], ["adopt"])


def test_objects_that_claim_to_be_equal_are_told_apart() -> None:
    class Equal(Told):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

    first, second = NamedPolicy("told", Equal()), NamedPolicy("told", Equal())
    engine, _ = simulated_engine([first])
    engine.adopt_policies(policy_set(engine, second))
    assert (first.policy.told, second.policy.told) == (["retire"], ["adopt"])


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        (("orka",), "did you mean orca"),
        (("orca", "orca"), "named twice"),
        (("orca:max_batch=1", "orca:max_batch=2"), "named twice"),
        (("orca:max_batch=0",), "max_batch"),
    ],
)
def test_a_wrong_set_is_refused_and_changes_nothing(specs: tuple[str, ...], words: str) -> None:
    engine, _ = simulated_engine(["orca:max_batch=1"])
    before = in_force(engine)
    with pytest.raises(ConfigurationError, match=words):
        engine.build_policies(specs)
    assert in_force(engine) == before
    assert engine.describe_policies().history == []


class TestTheAllocatorIsFixed:
    def test_another_is_refused(self) -> None:
        engine, _ = simulated_engine(["paged"])
        with pytest.raises(RestartNeeded, match="'prefix_cache' would take create_block_allocator over from 'paged'"):
            engine.build_policies(("orca", "prefix_cache"))
        with pytest.raises(RestartNeeded, match="'prefix_cache' would take create_block_allocator over from 'paged'"):
            engine.build_policies(("paged:headroom=2", "prefix_cache"))  # it would never be asked anything
        engine, _ = simulated_engine([])
        with pytest.raises(RestartNeeded, match="'paged' would take create_block_allocator over from 'prefix_cache'"):
            engine.build_policies(("paged:headroom=2",))
        with pytest.raises(RestartNeeded, match="'paged'"):
            engine.build_policies(("paged:headroom=2", "prefix_cache"))

    def test_it_stays_whoever_is_named(self) -> None:
        engine, _ = simulated_engine(["prefix_cache"])
        allocator = engine.state.pool._allocator
        assert isinstance(allocator, PrefixCachingAllocator)
        for specs in (("orca",), (), ("prefix_cache",), ("prefix_cache", "paged:headroom=2"), ("static_batch",)):
            engine.adopt_policies(engine.build_policies(specs))
            assert engine.state.pool._allocator is allocator

    def test_its_policy_comes_back_as_the_same_object(self) -> None:
        engine, _ = simulated_engine(["prefix_cache"])
        before = in_force(engine)["prefix_cache"]
        engine.adopt_policies(engine.build_policies(()))
        engine.adopt_policies(engine.build_policies(("prefix_cache",)))
        assert in_force(engine)["prefix_cache"] is before

    def test_other_hooks_of_its_policy_may_change(self) -> None:
        engine, _ = simulated_engine(["paged:headroom=2"])
        allocator = engine.state.pool._allocator
        assert isinstance(allocator, FreeListAllocator)
        engine.adopt_policies(engine.build_policies(("paged:headroom=5",)))
        assert in_force(engine)["paged"].headroom == 5
        assert engine.state.pool._allocator is allocator

    def test_a_wrong_grant_counts_against_its_policy_after_it_has_left(self) -> None:
        class Wrong(FreeListAllocator):
            def allocate(self, num_blocks: int) -> list[int]:
                return [0] * (num_blocks + 1)

        class Grants:
            @hookimpl
            def create_block_allocator(self, num_blocks: int) -> Wrong:
                return Wrong(num_blocks)

        engine, _ = simulated_engine([NamedPolicy("grants", Grants())])
        engine.adopt_policies(policy_set(engine))
        engine.submit(request("r"))
        output = engine.step()
        assert output.stats is not None
        assert output.stats.policy_faults == {"grants": 1}
        assert [sequence.request_id for sequence in engine.state.running] == ["r"]


class TestHeldResults:
    def held(self) -> Engine:
        """An engine with a batch of two, of which one is done and not delivered."""
        engine, _ = simulated_engine(["static_batch"])
        engine.submit(request("short", output=2))
        engine.submit(request("long", output=30))
        outputs = step_until(engine, lambda engine: len(engine.state.running) == 1 and engine.state.iteration > 3)
        assert not any(output.outputs or output.finished for output in outputs)
        return engine

    def test_they_go_out_at_a_swap(self) -> None:
        engine = self.held()
        engine.adopt_policies(engine.build_policies(("orca",)))
        output = engine.step()
        assert [outcome.request_id for outcome in output.finished] == ["short"]
        assert {piece.request_id for piece in output.outputs} == {"short", "long"}

    def test_they_go_out_when_a_set_is_taken_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        engine, _ = simulated_engine(["static_batch:batch_size=9"])
        engine.submit(request("short", output=9))
        engine.submit(request("long", output=30))
        step_until(engine, lambda engine: engine.state.iteration > 4)
        engine.adopt_policies(engine.build_policies(("static_batch",)))
        assert [len(piece.token_ids) for piece in engine.step().outputs] == [1] * 12
        assert not engine.step().outputs
        taken_back(engine, monkeypatch)
        assert {piece.request_id for piece in engine.step().outputs} == {"short", "long"}
        assert not engine.step().outputs

    def test_a_batch_goes_on_under_the_next_planner(self) -> None:
        engine = self.held()
        engine.adopt_policies(engine.build_policies(()))
        outputs = step_until(engine, lambda engine: not engine.has_work)
        tokens = [
            token
            for output in outputs
            for piece in output.outputs
            if piece.request_id == "long"
            for token in piece.token_ids
        ]
        assert len(tokens) == 30


class TestReservations:
    def test_what_is_unused_is_returned(self) -> None:
        engine, _ = simulated_engine(["reserved"], num_blocks=32)
        for name in ("a", "b"):
            engine.submit(request(name, prompt=20, output=100))
        engine.step()
        assert [len(sequence.block_table) for sequence in engine.state.running] == [8, 8]
        engine.adopt_policies(engine.build_policies(()))
        assert [len(sequence.block_table) for sequence in engine.state.running] == [2, 2]
        assert engine.state.num_free_blocks == 28
        engine.state.check_integrity()

    def test_they_are_asked_for_anew_oldest_first_for_what_is_free(self) -> None:
        engine, _ = simulated_engine([], num_blocks=16)
        for name in ("a", "b", "c"):
            engine.submit(request(name, prompt=10, output=100))
        engine.step()
        greedy = reserves(7)
        engine.adopt_policies(policy_set(engine, greedy))
        assert [len(sequence.block_table) for sequence in engine.state.running] == [7, 7, 2]
        assert greedy.policy.asked == [0, 1, 2]
        assert engine.state.num_free_blocks == 0
        engine.state.check_integrity()

    def test_a_roll_back_renews_them_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        engine, _ = simulated_engine([reserves(6)], num_blocks=32)
        engine.submit(request("a", prompt=10, output=100))
        engine.step()
        engine.adopt_policies(engine.build_policies(()))
        assert len(engine.state.running[0].block_table) == 1
        taken_back(engine, monkeypatch)
        assert len(engine.state.running[0].block_table) == 6

    def test_shared_blocks_stay(self) -> None:
        engine, _ = simulated_engine(["prefix_cache", "reserved"], num_blocks=32, token_limit=128)
        engine.submit(request("a", prompt=50, output=40, n=2))
        step_until(engine, lambda engine: len(engine.state.running) == 2)
        first, second = engine.state.running
        assert first.block_table[:3] == second.block_table[:3]
        engine.adopt_policies(engine.build_policies(()))
        assert first.block_table[:3] == second.block_table[:3]
        assert (len(first.block_table), len(second.block_table)) == (4, 4)
        engine.state.check_integrity()
        step_until(engine, lambda engine: not engine.has_work)

    def test_a_shortage_of_rank_counts_by_what_is_asked_for_now(self) -> None:
        class Watches(Reserves):
            def __init__(self, blocks: int) -> None:
                super().__init__(blocks)
                self.missing: list[int] = []

            @hookimpl
            def rank_sequences(self, view: Any) -> Any:
                return [s.id for queue in view.waiting.values() for s in queue.window()], set()

            @hookimpl
            def choose_victims(self, shortage: Any) -> Any:
                self.missing.append(shortage.num_blocks)
                return ()

        watches = Watches(6)
        engine, _ = simulated_engine([NamedPolicy("watches", watches), "paged:headroom=0"], num_blocks=8)
        engine.submit(request("a", prompt=10, output=100))
        engine.step()
        engine.submit(request("b", prompt=10, output=100))
        engine.step()
        watches.blocks = 7
        engine.step()
        assert watches.missing == [4, 5]

    def test_whoever_boarded_because_overdue_keeps_the_blocks_to_its_first_token(self) -> None:
        class LastComesFirst:
            @hookimpl
            def rank_sequences(self, view: Any) -> Any:
                everybody = [*view.running, *(s for queue in view.waiting.values() for s in queue.window())]
                return sorted((s.id for s in everybody), reverse=True), set()

        engine, _ = simulated_engine(
            [NamedPolicy("last", LastComesFirst())],
            num_blocks=16,
            sequence_limit=2,
            token_limit=16,
            max_wait_iterations=5,
        )
        engine.submit(request("victim", prompt=100, output=4))
        for number in range(12):
            engine.submit(request(f"r{number}", prompt=8, output=3))
        step_until(engine, lambda engine: engine.state.is_running(0) and 0 in engine.state.protected)
        (victim,) = (sequence for sequence in engine.state.running if sequence.id == 0)
        assert len(victim.block_table) == 7
        assert victim.num_computed_tokens < 100
        engine.adopt_policies(engine.build_policies(()))
        assert len(victim.block_table) == 7


def test_what_is_in_force_is_described() -> None:
    engine, _ = simulated_engine(["orca:max_batch=3"])
    engine.submit(request("r"))
    step_until(engine, lambda engine: not engine.has_work)
    report = engine.describe_policies()
    described, history, on_probation = report.policies, report.history, report.on_probation
    (orca,) = (policy for policy in described if policy.name == "orca")
    assert orca.spec == "orca:max_batch=3"
    assert orca.options == {"max_batch": 3, "output": "declared"}
    assert not orca.is_default
    assert set(orca.hooks) == {"plan_iteration", "reserve_blocks"}
    assert (orca.faults, orca.promised_wait_iterations) == (0, None)
    assert {policy.name for policy in described if policy.is_default} >= {"fcfs", "stall_free"}
    assert (history, on_probation) == ([], False)
