from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_engine.errors import ConfigurationError
from core_engine.lab.simulated import SimulatedModel
from core_engine.request import Request
from tests.plugins.runs import Run, alternately, flood, make_request, modestly

INTERACTIVE, STANDARD, BATCH = -10, 0, 10


def interactive(name: str, prompt: int = 10, output: int = 5) -> Request:
    return make_request(name, prompt, output, priority=INTERACTIVE, class_name="interactive")


def batch(name: str, prompt: int = 10, output: int = 5, priority: int = BATCH) -> Request:
    return make_request(name, prompt, output, priority=priority, class_name="batch")


class TestRank:
    def test_the_lowest_number_goes_first_and_equals_by_arrival(self) -> None:
        run = Run("priority:preempt=false,min_share=0", sequence_limit=1)
        run.finish(*(make_request(f"{p}{i}", priority=p) for i, p in enumerate((7, -3, 0, 7, -3))))
        assert run.started() == ["-31", "-34", "02", "70", "73"]

    def test_everybody_of_one_priority_is_served_by_arrival(self) -> None:
        run = Run("priority", sequence_limit=2)
        run.finish(*(make_request(f"r{i}", output=5 + i) for i in range(6)))
        assert run.started() == [f"r{i}" for i in range(6)]
        assert run.engine.state.num_preemptions == 0


class TestPreemption:
    def test_an_urgent_request_is_in_the_next_iteration_although_a_flood_is_at_the_limit(self) -> None:
        run = Run("priority", sequence_limit=8, num_blocks=200)
        run.under_flood(
            flood("batch", [(20, 200)], priority=BATCH, class_name="batch"), until=lambda: len(run.records) == 50
        )
        assert run.records[-1].num_running == 8
        run.submit(interactive("urgent"))
        record = run.step()
        assert "urgent" in run.planned(record)
        assert list(record.preempted.values()) == ["rank"]
        assert record.num_running == 8

    def test_without_the_policy_it_waits(self) -> None:
        run = Run(sequence_limit=8, num_blocks=200)
        run.under_flood(flood("batch", [(20, 200)], priority=BATCH), until=lambda: len(run.records) == 50)
        run.submit(interactive("urgent"))
        assert "urgent" not in run.planned(run.step())

    def test_as_many_take_a_seat_as_are_more_urgent_than_those_who_sit(self) -> None:
        run = Run("priority:min_share=0", sequence_limit=4, num_blocks=200)
        run.submit(batch("b0", output=99), batch("b1", output=99), interactive("i0", output=99), batch("b2", output=99))
        run.step(3)
        run.submit(*(interactive(f"i{i}", output=99) for i in range(1, 5)))
        record = run.step()
        # The oldest batch request keeps the seat of its class.
        assert run.planned(record).keys() == {"b0", "i0", "i1", "i2"}

    def test_nobody_takes_the_seat_of_an_equal(self) -> None:
        run = Run("priority", sequence_limit=2).submit(make_request("a", output=50), make_request("b", output=50))
        run.step()
        run.submit(make_request("c", output=5))
        assert not run.step().preempted

    def test_the_oldest_is_nobodys_victim_and_the_next_worst_goes(self) -> None:
        run = Run("priority", sequence_limit=3)
        run.submit(*(make_request(f"p{p}", output=50, priority=p) for p in (8, 4, 6)))
        run.step()
        run.submit(make_request("p2", priority=2))
        assert run.step().preempted == {2: "rank"}

    def test_memory_is_taken_from_the_less_urgent_too(self) -> None:
        run = Run("priority", num_blocks=8, block_size=16, sequence_limit=8)
        run.submit(interactive("i", 10, 20), batch("b0", 25, 10), batch("b1", 25, 10))
        run.step(2)
        run.submit(interactive("urgent", 60, 5))
        record = run.step()
        assert record.preempted == {2: "rank"}
        assert run.planned(record)["urgent"] == 32  # what `paged` keeps free stays free

    def test_it_can_be_switched_off(self) -> None:
        run = Run("priority:preempt=false", sequence_limit=2).submit(batch("a", output=9), batch("b", output=9))
        run.step()
        run.submit(interactive("urgent"))
        assert not run.step().preempted
        run.finish()
        assert run.engine.state.num_preemptions == 0


class TestMinimumService:
    def test_each_class_with_work_has_a_seat(self) -> None:
        run = Run("priority", sequence_limit=4, num_blocks=200)
        interactives = flood("i", [(10, 30)], priority=INTERACTIVE, class_name="interactive")
        run.under_flood(interactives, until=lambda: len(run.records) == 20)
        run.submit(make_request("standard", 10, 50), batch("batch", 10, 50))
        record = run.step()
        assert {"standard", "batch"} < run.planned(record).keys()
        assert record.num_running == 4
        run.under_flood(interactives, until=lambda: run.has_ended("batch") and run.has_ended("standard"))
        rows = [row for record in run.records for row in record.rows if row.request_id in ("standard", "batch")]
        assert len(rows) == 2 * 50
        assert all(not set(record.preempted) & {row.sequence_id for row in rows} for record in run.records)

    def test_a_class_is_known_by_the_number_whatever_names_there_are(self) -> None:
        run = Run('priority:classes={"gold":-5,"lead":5}', sequence_limit=2, num_blocks=200)
        run.submit(make_request("gold-0", 10, 99, priority=-5), make_request("gold-1", 10, 99, priority=-7))
        run.step()
        run.submit(make_request("lead", 10, 9, priority=-4))
        assert "lead" in run.planned(run.step())
        run.submit(make_request("gold-2", 10, 9, priority=-8))
        assert "gold-2" not in run.planned(run.step())  # both classes are down to their seats

    def test_with_fewer_seats_than_classes_they_take_turns_of_so_many_tokens(self) -> None:
        run = Run("priority:service_tokens=6,window_iterations=8,min_share=0.3", sequence_limit=2, num_blocks=200)
        run.submit(make_request("old", 10, 400, priority=INTERACTIVE))
        run.step()
        run.submit(make_request("standard", 10, 60), batch("batch", 10, 60))
        while not (run.has_ended("standard") and run.has_ended("batch")):
            run.step()
        turns = [run.names[i] for record in run.records for i in record.started][1:]
        assert turns[:6] == ["standard", "batch"] * 3
        # Only the first turn, which was had by rank, may be shorter.
        for name in ("standard", "batch"):
            ran = [any(row.request_id == name for row in record.rows) for record in run.records]
            lengths = [len(list(group)) for runs, group in itertools.groupby(ran) if runs]
            assert min(lengths[1:-1]) >= 6

    @pytest.mark.parametrize(
        ("planner", "share"),
        [
            ("stall_free", 0.1),
            pytest.param("prefill_first", 0.1, marks=pytest.mark.full),
            pytest.param("stall_free", 0.02, marks=pytest.mark.full),
            pytest.param("prefill_first", 0.3, marks=pytest.mark.full),
        ],
    )
    def test_a_thousand_tokens_of_the_lowest_class_end_in_time(self, planner: str, share: float) -> None:
        model = SimulatedModel(base_seconds=0.010, row_seconds=0.0005)
        limits = {"sequence_limit": 8, "num_blocks": 400, "token_limit": 128, "model": model}
        alone = Run(planner, **limits).finish(batch("long", 40, 1000)).clock.now()
        run = Run(f"priority:min_share={share}", planner, **limits)
        interactives = flood("i", [(100, 2), (60, 40), (128, 1)], priority=INTERACTIVE, class_name="interactive")
        run.under_flood(interactives, until=lambda: len(run.records) == 30)
        arrived = run.clock.now()
        run.submit(batch("long", 40, 1000))
        run.under_flood(interactives, until=lambda: run.has_ended("long"), backlog=4)
        longest = max(record.duration_seconds for record in run.records)
        multiple = max(1 / share, longest / 0.0105)
        assert run.clock.now() - arrived <= multiple * alone * 1.1
        assert all(run.names[i] != "long" for record in run.records for i in record.preempted)

    def test_service_counts_net_progress(self) -> None:
        # One seat beside the oldest, so that the lowest class is preempted again and again and recomputes.
        run = Run("priority:service_tokens=4,min_share=0.2", sequence_limit=2, num_blocks=400, token_limit=64)
        run.submit(make_request("old", 10, 1000, priority=INTERACTIVE))
        run.step()
        standard = flood("s", [(30, 20)])
        run.submit(batch("long", 60, 30))
        run.under_flood(standard, until=lambda: run.has_ended("long"), backlog=2)
        new = sum(row.num_new_tokens for record in run.records for row in record.rows if row.request_id == "long")
        computed = sum(row.num_tokens for record in run.records for row in record.rows if row.request_id == "long")
        assert new == 89
        assert computed > new

    def test_the_oldest_of_a_class_is_served_whatever_number_the_others_have(self) -> None:
        run = Run("priority", "prefill_first", sequence_limit=4, num_blocks=400)
        rivals = alternately(flood("i", [(60, 3)], priority=INTERACTIVE), flood("b", [(60, 3)], priority=BATCH - 1))
        run.submit(batch("last", 20, 60))
        run.under_flood(rivals, until=lambda: run.has_ended("last"), at_most=1000)
        assert run.records[-1].num_waiting >= 4


shapes = st.lists(st.tuples(st.integers(1, 120), st.integers(1, 40)), min_size=1, max_size=4)


@modestly
@given(shapes, shapes, st.integers(3, 6), st.sampled_from([0.05, 0.1, 0.3]), st.integers(1, 80))
def test_the_lowest_class_ends_in_time_whatever_else_comes(
    urgent: list[tuple[int, int]], standard: list[tuple[int, int]], seats: int, share: float, output: int
) -> None:
    model = SimulatedModel(base_seconds=0.010, row_seconds=0.0005)
    limits = {"sequence_limit": seats, "num_blocks": 200, "token_limit": 128, "model": model}
    alone = Run(**limits).finish(batch("last", 20, output)).clock.now()
    run = Run(f"priority:min_share={share}", **limits)
    rivals = alternately(flood("i", urgent, priority=INTERACTIVE), flood("s", standard, priority=STANDARD))
    run.under_flood(rivals, until=lambda: len(run.records) == 10)
    arrived = run.clock.now()
    run.submit(batch("last", 20, output))
    run.under_flood(rivals, until=lambda: run.has_ended("last"), at_most=2000)
    longest = max(record.duration_seconds for record in run.records)
    # One iteration goes by before it boards, and a block of the prompt at a time may be all it gets.
    assert run.clock.now() - arrived <= max(1 / share, longest / 0.0105) * alone + 3 * longest


@pytest.mark.parametrize(
    ("option", "named"),
    [("min_share=1.5", "min_share"), ("min_share=0.5", "min_share"), ("window_iterations=0", "window_iterations"),
     ("service_tokens=-1", "service_tokens"), ("classes={}", "classes"), ("preempt=maybe", "preempt")],
)  # fmt: skip
def test_options_out_of_range_are_refused(option: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"priority.*{named}"):
        Run(f"priority:{option}")
