"""Figures as pictures: a file for each, whether anything was measured or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="the extra `plot`")

TERMS = {"waiting": 2.0, "synchronisation": 1.5, "utilisation": 1.2}
RATES = {"iteration_level": 1.8, "static": 0.5}


def row(percent: float, factor: float, *, is_measured: bool) -> dict[str, Any]:
    compared = {"ratio": 3.6, "terms": TERMS, "simulated_ratio": 3.8, "simulated_terms": TERMS}
    return {
        "percentile": percent,
        "factor": factor,
        "requests_per_second": RATES if is_measured else {},
        "searched": {"requests_per_second": RATES | {"static_padded": 0.4}, "ratio": 3.6, "terms": TERMS},
    } | {key: value if is_measured else None for key, value in compared.items()}


@pytest.mark.parametrize("is_measured", [False, True])
def test_each_table_of_capacities_has_its_picture(tmp_path: Path, is_measured: bool) -> None:
    from gateway.bench.plots import plot_capacity

    rows = [row(percent, factor, is_measured=is_measured) for percent in (99.0, 50.0) for factor in (2.0, 10.0)]
    tables = {"all_outputs": rows, "outputs_of_8_up": rows}
    figures = {"model": "m", "dtype": "float32", "requests": 64, "tables": tables}
    plot_capacity(figures, tmp_path / "capacity.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capacity-outputs_of_8_up.png", "capacity.png"]


def test_both_series_of_an_iteration_have_their_pictures(tmp_path: Path) -> None:
    from gateway.bench.plots import plot_iteration

    points = [
        {"running": number, "context_tokens": 128 * number, "seconds": 0.05 * number, "kv_bytes": 10**6 * number}
        for number in (1, 2, 4)
    ]
    figures = {"model": "m", "dtype": "float32", "weight_bytes": 10**8, "by_running": points, "by_context": points}
    plot_iteration(figures, tmp_path / "pictures")
    names = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert names == ["iteration-context.svg", "iteration-running.svg"]
