"""The engine as a library: the example that shows it, on a simulated model."""

from __future__ import annotations

import runpy
import sys
from functools import partial
from pathlib import Path

import pytest

import core_engine

EXAMPLE = Path(__file__).parents[2] / "examples" / "in_process.py"


def test_the_example_answers_every_question(
    quick_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(core_engine, "EngineConfig", partial(core_engine.EngineConfig, executor="simulated"))
    arguments = ["one?", "two?", "x" * 5000, "--model", str(quick_model), "--max-tokens", "7"]
    monkeypatch.setattr(sys, "argv", ["in_process.py", *arguments])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    shown = capsys.readouterr().out
    assert shown.count("(7 tokens, length)") == 2
    assert "refused: the prompt has" in shown
    assert shown.index("refused") < shown.index("one?\n") < shown.index("two?\n")
