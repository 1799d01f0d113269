from __future__ import annotations

import itertools

import pytest

from core_engine.errors import IntegrityError
from core_engine.lab.simulate import Recorder, Simulation, simulate
from core_engine.lab.workloads import Lengths, at_once, evenly, poisson, requests, uniform_lengths
from core_engine.messages import IterationOutput, Outcome, SequenceOutput
from core_engine.testkit import simulated_engine


def test_runs_a_workload_to_its_end() -> None:
    engine, clock = simulated_engine()
    wanted = list(requests([Lengths(10, 5), Lengths(20, 3)], seed=0, vocab_size=1000))
    simulation = simulate(engine, clock, at_once(wanted))
    assert {key: len(tokens) for key, tokens in simulation.token_ids.items()} == {
        ("request-0", 0): 5,
        ("request-1", 0): 3,
    }
    assert simulation.ended == {"request-0": 5, "request-1": 3}
    assert set(simulation.outcomes) == {"request-0", "request-1"}


def test_time_jumps_over_idle_stretches() -> None:
    engine, clock = simulated_engine()
    wanted = requests([Lengths(10, 2)] * 3, seed=0, vocab_size=1000)
    simulation = simulate(engine, clock, evenly(wanted, 1000.0))
    assert simulation.iterations == 6
    assert 2000 < clock.now() < 2001


def test_endless_arrivals_stop_at_the_iterations_asked_for() -> None:
    engine, clock = simulated_engine(num_blocks=200)
    endless = poisson(requests(uniform_lengths(0), seed=0, vocab_size=1000), 50.0, seed=0)
    simulation = simulate(engine, clock, endless, max_iterations=300)
    assert simulation.iterations == 300
    assert engine.has_work


def test_arrivals_wait_for_their_time() -> None:
    engine, clock = simulated_engine()
    seen: list[float] = []
    wanted = requests([Lengths(4, 30), Lengths(4, 30)], seed=0, vocab_size=1000)
    simulation = simulate(engine, clock, evenly(wanted, 0.1), before_step=lambda iteration: seen.append(clock.now()))
    second = simulation.accepted["request-1"]
    assert seen[second - 2] < 0.1 <= seen[second - 1]


def test_before_step_may_cancel() -> None:
    engine, clock = simulated_engine()
    wanted = requests([Lengths(4, 30)], seed=0, vocab_size=1000)
    simulation = simulate(
        engine, clock, at_once(wanted), before_step=lambda i: engine.cancel("request-0") if i == 5 else None
    )
    assert simulation.outcomes["request-0"].finish_reason == "cancelled"
    assert simulation.iterations == 5


def test_the_same_seed_gives_the_same_record_byte_for_byte() -> None:
    def record(seed: int) -> bytes:
        recorder = Recorder()
        engine, clock = simulated_engine(["prefix_cache", recorder], num_blocks=40)
        lengths = itertools.islice(uniform_lengths(seed, prompt_tokens=(5, 200), output_tokens=(1, 40)), 40)
        simulate(engine, clock, poisson(requests(lengths, seed=seed, vocab_size=1000), 20.0, seed))
        return b"".join(recorder.lines)

    assert record(1) == record(1)
    assert record(1) != record(2)


def test_records_survive_their_lines() -> None:
    recorder = Recorder()
    engine, clock = simulated_engine([recorder])
    simulate(engine, clock, at_once(requests([Lengths(10, 2)], seed=0, vocab_size=1000)))
    assert [record.num_tokens for record in recorder.records()] == [{0: 10}, {0: 1}]
    assert recorder.records()[-1].finished == {0: "length"}


def test_an_end_told_twice_is_noticed() -> None:
    simulation = Simulation()
    output = IterationOutput(epoch=0, policy_version=1, finished=[Outcome(request_id="a", finish_reason="length")])
    simulation.add(output)
    with pytest.raises(IntegrityError, match="twice"):
        simulation.add(output)


def test_output_after_the_end_is_noticed() -> None:
    simulation = Simulation()
    simulation.add(IterationOutput(epoch=0, policy_version=1, outputs=[SequenceOutput("a", 0, [1], None, "length")]))
    with pytest.raises(IntegrityError, match="after its end"):
        simulation.add(IterationOutput(epoch=0, policy_version=1, outputs=[SequenceOutput("a", 0, [2])]))
