from __future__ import annotations

import itertools
import statistics

from core_engine.lab.workloads import Lengths, at_once, evenly, poisson, requests, uniform_lengths


def test_default_lengths_are_those_of_the_paper() -> None:
    lengths = list(itertools.islice(uniform_lengths(0), 5000))
    prompts, outputs = [x.prompt_tokens for x in lengths], [x.output_tokens for x in lengths]
    assert (min(prompts), max(prompts)) == (32, 512)
    assert (min(outputs), max(outputs)) == (1, 128)
    assert abs(statistics.mean(prompts) - 272) < 10
    assert abs(statistics.mean(outputs) - 64.5) < 3


def test_equal_seeds_give_equal_workloads_and_others_not() -> None:
    def workload(seed: int) -> list[object]:
        wanted = requests(uniform_lengths(seed), seed=seed, vocab_size=100)
        return list(itertools.islice(poisson(wanted, 3.0, seed), 20))

    assert workload(1) == workload(1)
    assert workload(1) != workload(2)


def test_requests_have_the_wanted_lengths_and_their_own_names() -> None:
    wanted = list(requests([Lengths(7, 3), Lengths(9, 4)], seed=0, vocab_size=50, model="m", prefix="w"))
    assert [(r.id, r.model, len(r.prompt_token_ids), r.sampling.max_tokens) for r in wanted] == [
        ("w-0", "m", 7, 3),
        ("w-1", "m", 9, 4),
    ]
    assert all(0 <= token < 50 for r in wanted for token in r.prompt_token_ids)
    assert wanted[0].sampling.ignore_eos


def test_arrivals() -> None:
    wanted = list(requests([Lengths(1, 1)] * 4, seed=0, vocab_size=50))
    assert [a.seconds for a in at_once(wanted, 2.5)] == [2.5] * 4
    assert [a.seconds for a in evenly(wanted, 0.5)] == [0.0, 0.5, 1.0, 1.5]
    assert [a.request for a in evenly(wanted, 0.5)] == wanted


def test_poisson_arrivals_have_their_rate_and_spread() -> None:
    wanted = itertools.islice(requests(itertools.repeat(Lengths(1, 1)), seed=0, vocab_size=50), 5000)
    seconds = [arrival.seconds for arrival in poisson(wanted, 4.0, seed=7)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(seconds)]
    assert seconds == sorted(seconds)
    assert abs(statistics.mean(gaps) - 0.25) < 0.02
    assert abs(statistics.stdev(gaps) - 0.25) < 0.03
