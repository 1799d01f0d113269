"""Capacity measured in several turns, on models whose speed is known because they are simulations as well."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from core_engine import EngineConfig
from core_engine.lab.arriving import Answered
from core_engine.lab.rates import Described, Rates
from core_engine.linear_table import LinearTable
from gateway.bench import quiet
from gateway.bench.capacity import FACTORS, ITERATION_LEVEL, PERCENTS, STATIC, capacity
from gateway.bench.capacity_runs import Runs
from gateway.bench.kept import WrongFile
from gateway.bench.quiet import Disturbed

NUM_REQUESTS = 8
CONFIG = EngineConfig(seed=0)

pytestmark = pytest.mark.slow


class Killed(Exception):
    """The process is ended in the middle of a run."""


class KnownRates(Rates):
    """A model that takes so many times what its linear layers do; `held_back` times more, where batches aren't static.

    Each run is counted; after `lives` of them the process is killed.
    """

    def __init__(self, times: float, held_back: float = 1.0, lives: int | None = None) -> None:
        super().__init__(CONFIG, NUM_REQUESTS)
        self.made: list[str] = []
        self._times = times
        self._held_back = held_back
        self._lives = lives

    def describe(self) -> Described:
        self._count("description")
        return _model(1.0)

    def warm_up(self) -> None:
        pass

    def measured(self, policies: tuple[str, ...], rate: float, alone: Sequence[Answered] = ()) -> list[Answered]:
        self._count(f"{policies} {rate}")
        times = self._times if policies else self._times * self._held_back
        return self.simulated(_model(times), policies, rate, alone if times == self._times else ())

    def alone_measured(self, which: slice) -> list[Answered]:
        self._count(f"alone {which}")
        return self.alone_simulated(_model(self._times))[which]

    def _count(self, run: str) -> None:
        if len(self.made) == self._lives:
            raise Killed
        self.made.append(run)


def _model(times: float) -> Described:
    linear = LinearTable(body={1: 0.02 * times, 8: 0.03 * times, 512: 0.6 * times}, head={1: 0.0})
    return Described(name="known", dtype="float32", vocab_size=100, linear=linear)


def measure(rates: Rates, path: Path | None = None, minutes: float | None = None, **options: Any) -> dict[str, Any]:
    config = options.pop("config", CONFIG)
    runs = Runs(
        config,
        NUM_REQUESTS,
        path=path,
        force=options.pop("force", True),
        minutes=minutes,
        progress=lambda line: None,
        rates=rates,
    )
    wanted: dict[str, Any] = {"policies": (), "batch_sizes": (4,), "num_rates": 3, "every_kind": False} | options
    return capacity(runs, progress=lambda line: None, **wanted)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file after a turn in which there was time for the simulation alone."""
    path = tmp_path_factory.mktemp("kept") / "capacity.jsonl"
    figures = measure(KnownRates(2.0), path, minutes=0)
    assert not figures["complete"]
    assert not figures["rates_measured"]
    for rows in figures["tables"].values():
        assert [(row["percentile"], row["factor"]) for row in rows] == [(p, k) for p in PERCENTS for k in FACTORS]
        assert {row["ratio"] for row in rows} == {None}
        assert all(row["searched"]["ratio"] > 0 for row in rows)
        assert all(row["searched"]["requests_per_second"].keys() == {ITERATION_LEVEL, *STATIC} for row in rows)
    return path.read_bytes()


@pytest.fixture
def kept(tmp_path: Path, simulated: bytes) -> Path:
    path = tmp_path / "capacity.jsonl"
    path.write_bytes(simulated)
    return path


def shares(figures: dict[str, Any]) -> list[float]:
    return [row["share_of_simulated"] for rows in figures["tables"].values() for row in rows]


def test_a_model_in_proportion_to_its_linear_layers_has_the_whole_ratio(kept: Path) -> None:
    figures = measure(KnownRates(2.0), kept)
    assert figures["complete"]
    assert shares(figures) == pytest.approx([1.0] * len(shares(figures)), rel=1e-3)
    saturated = figures["saturated_requests_per_second"]
    assert saturated["measured"][ITERATION_LEVEL] == pytest.approx(saturated["simulated"][ITERATION_LEVEL] / 2)
    for row in figures["tables"]["all_outputs"]:
        split = row["terms"]
        assert row["ratio"] == pytest.approx(split["waiting"] * split["synchronisation"] * split["utilisation"])
        assert row["best_static"] in STATIC


def test_what_iterations_cost_beside_the_model_is_missing_from_the_ratio(kept: Path) -> None:
    figures = measure(KnownRates(2.0, held_back=1.25), kept)
    assert all(share < 0.9 for share in shares(figures))


def test_turns_that_are_killed_lose_nothing_and_repeat_nothing(kept: Path, tmp_path: Path) -> None:
    made: list[str] = []
    figures = None
    while figures is None:
        rates = KnownRates(2.0, lives=3)
        try:
            figures = measure(rates, kept)
        except Killed:
            assert len(rates.made) == 3
        made += rates.made
    assert len(set(made)) == len(made)
    at_once = KnownRates(2.0)
    assert measure(at_once) | {"foreign_cores": 0} == figures | {"foreign_cores": 0}
    assert set(made) | {"description"} == set(at_once.made)


def test_every_kind_of_static_batching_can_be_measured(kept: Path) -> None:
    figures = measure(KnownRates(2.0), kept, every_kind=True)
    assert figures["rates_measured"].keys() == {ITERATION_LEVEL, *STATIC}


def test_results_of_another_configuration_are_refused(kept: Path) -> None:
    with pytest.raises(WrongFile, match=r"measured with dtype 'auto', not 'bfloat16'; name another file"):
        measure(KnownRates(2.0), kept, config=EngineConfig(seed=0, dtype="bfloat16"))
    kept.write_text("# Notes\n")
    with pytest.raises(WrongFile, match="holds no results of an earlier turn"):
        measure(KnownRates(2.0), kept)


def test_what_was_measured_beside_others_is_not_kept(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept.read_bytes()
    monkeypatch.setattr(quiet.Watch, "foreign_cores", lambda self: 0.8)
    with pytest.raises(Disturbed, match=r"0\.80 cores"):
        measure(KnownRates(2.0), kept, force=False)
    assert kept.read_bytes() == before
    assert measure(KnownRates(2.0), kept)["foreign_cores"] >= 0.8
