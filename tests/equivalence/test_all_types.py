"""Every decoder type of transformers: it runs as it does alone, or it is refused; never anything between.

The results are written as a table to the file that the environment variable
JITNEY_EQUIVALENCE_REPORT names, if there is one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from core_engine.errors import ModelError
from core_engine.model.probe import probe
from core_engine.model.vet import vet_architecture
from tests.equivalence.families import DECODER_TYPES, NotBuiltError, tiny_model
from tests.equivalence.harness import build_executor, run_mixed

pytestmark = pytest.mark.full

TOLERANCE = 1e-4
# Types that must run, whatever becomes of the others.
REQUIRED = frozenset(
    {
        "apertus", "cohere", "ernie4_5", "exaone4", "gemma", "gemma2", "gemma3_text", "glm4", "gpt2", "gpt_neox",
        "gpt_oss", "gptj", "granite", "hunyuan_v1_dense", "llama", "llama4_text", "mistral", "mixtral", "nemotron",
        "olmo2", "olmo3", "opt", "phi", "phi3", "qwen2", "qwen3", "qwen3_moe", "smollm3", "stablelm", "starcoder2",
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def report() -> Iterator[list[tuple[str, str, str]]]:
    """Rows of (type, result, detail)."""
    rows: list[tuple[str, str, str]] = []
    yield rows
    if path := os.environ.get("JITNEY_EQUIVALENCE_REPORT"):
        lines = ["| type | result | largest difference, or why not |", "|---|---|---|"]
        lines += [f"| {name} | {result} | {detail} |" for name, result, detail in sorted(rows)]
        Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("model_type", DECODER_TYPES)
def test_runs_as_alone_or_is_refused(model_type: str, report: list[tuple[str, str, str]]) -> None:
    try:
        model = tiny_model(model_type)
    except NotBuiltError as error:
        report.append((model_type, "not tried", _first_line(error)))
        assert model_type not in REQUIRED
        pytest.skip(f"no tiny model of it: {_first_line(error)}")
    try:
        vet_architecture(model.config.to_dict(), model_type)
        run = run_mixed(model)
    except (ModelError, ValueError, IndexError) as error:
        # transformers itself can't run some of these on token ids alone, which ends in errors of its own.
        report.append((model_type, "refused", _first_line(error)))
        assert model_type not in REQUIRED
        return
    if run.deviation <= TOLERANCE:
        report.append((model_type, "equal", f"{run.deviation:.0e}"))
        return
    assert model_type not in REQUIRED
    model = tiny_model(model_type)
    with pytest.raises(ModelError, match="differ from those of each sequence alone"):
        probe(model, build_executor(model))
    report.append((model_type, "refused", "the probe after loading finds that it mixes sequences up"))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].replace("|", "/")
