"""The probe after loading: a mixed batch must give each sequence what it gets alone.

Two sequences run in chunks, mixed with each other and with idle rows, over scattered blocks; each
runs alone through transformers' own attention. A model that mixes tokens by anything but attention,
or attends in a way that was not understood, differs at once. Quantised layers compute meanwhile what
their weights say: rounding a row anew after every difference of rounding would look like a difference.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any

import torch

from core_engine.driver import HandDriver
from core_engine.errors import ModelError
from core_engine.model.attention import IMPLEMENTATION
from core_engine.model.executor import TransformersExecutor
from core_engine.model.quantized_linear import precise

# Of the differences' size relative to the spread of the logits. Rounding in another order stays far below
# (0.06 in bfloat16, say); a model that mixes sequences up is far above.
_TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: 0.2, torch.float16: 0.03}
_CHUNKS = (7, 1, 5, 2, 1, 11, 3)


class ProbeError(ModelError):
    """The model computes something else than transformers does."""


def probe(model: Any, executor: TransformersExecutor) -> float:
    """How far mixed and lone logits are apart, relative to the spread of the logits.

    Raises ProbeError if it is beyond what rounding explains. Needs the executor's KV blocks for itself.
    """
    name = type(model).__name__
    try:
        with precise(model):
            deviation = _deviation(model, executor)
    except Exception as error:
        raise ProbeError(f"{name} can't be served: a mixed batch ends in {type(error).__name__}: {error}") from error
    tolerance = _TOLERANCES[model.dtype]
    if not deviation <= tolerance:  # NaN included
        raise ProbeError(
            f"{name} can't be served: in a mixed batch its logits differ from those of each sequence alone by "
            f"{deviation:.2g} of their spread, where {tolerance} would be rounding. It mixes tokens by something else "
            "than attention, or attends in a way that isn't understood"
        )
    return deviation


def _deviation(model: Any, executor: TransformersExecutor) -> float:
    spec = executor.spec
    driver = HandDriver(spec)
    room = min(spec.max_model_len, spec.num_blocks // 2 * spec.block_size)
    # One sequence of more than a block, where there is room, and one of less.
    sequences = [
        driver.sequence([(31 * i * i + step * i + 11) % spec.vocab_size for i in range(min(length, room))])
        for step, length in ((7, spec.block_size + 9), (5, spec.block_size // 2 + 3))
    ]
    alone = {sequence.id: _lone_logits(model, sequence.token_ids) for sequence in sequences}
    chunks = cycle(1 if chunk == 1 else chunk * max(1, spec.block_size // 32) for chunk in _CHUNKS)
    differences, spreads = [], []
    while pending := [sequence for sequence in sequences if sequence.num_pending_tokens]:
        plan = [(sequence, min(sequence.num_pending_tokens, next(chunks))) for sequence in pending]
        batch = driver.bind(plan, sample_all=True, idle_rows=2)
        logits = executor.logits(batch)
        assert logits is not None
        driver.advance(batch)
        for row, sequence in enumerate(pending):
            expected = alone[sequence.id][sequence.num_computed_tokens - 1]
            differences.append((logits[row].float() - expected).norm())
            spreads.append((expected - expected.mean()).norm())
    return float(torch.stack(differences).norm() / torch.stack(spreads).norm())


@torch.inference_mode()
def _lone_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """Float32 logits `[tokens, vocab_size]` of one sequence by transformers alone."""
    model.set_attn_implementation("eager")
    try:
        token_ids = torch.tensor([tokens], device=model.device)
        positions = torch.arange(len(tokens), device=model.device).unsqueeze(0)
        return model(input_ids=token_ids, position_ids=positions, use_cache=False).logits[0].float()
    finally:
        model.set_attn_implementation(IMPLEMENTATION)
