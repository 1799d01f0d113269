"""One iteration's output as messages of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from core_engine.messages import IterationOutput

PIECE_BYTES = 1 << 20  # of packed log-probabilities; whatever else an iteration tells is small


def in_pieces(output: IterationOutput) -> Iterator[IterationOutput]:
    """The output itself, or several that say the same in the same order, the last with the outcomes and numbers."""
    start = num_bytes = 0
    for end, told in enumerate(output.outputs, 1):
        num_bytes += sum(piece.num_bytes for piece in told.prompt_logprobs)
        if num_bytes > PIECE_BYTES:
            yield IterationOutput(
                epoch=output.epoch,
                policy_version=output.policy_version,
                accepted=[] if start else output.accepted,
                outputs=output.outputs[start:end],
            )
            start, num_bytes = end, 0
    yield msgspec.structs.replace(output, accepted=[], outputs=output.outputs[start:]) if start else output
