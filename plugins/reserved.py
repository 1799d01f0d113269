"""Memory by reservation: what a sequence can need is taken when it starts."""

from __future__ import annotations

from typing import Literal

import msgspec

from core_engine.hookspecs import hookimpl
from core_engine.view import EngineView, SequenceView


class ReservedOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`output`: which length is counted on, `max` (max_tokens) or `predicted`."""

    output: Literal["max", "predicted"] = "max"


class Reserved:
    """Reserves the blocks of prompt and output on start, so that nothing that runs is ever preempted for memory.

    `output=max` counts on max_tokens; `output=predicted` on the prediction, beyond which a sequence grows on demand
    and may be preempted. Source: Orca (OSDI '22) reserves max_tokens slots per request. Guarantees with
    `output=max` that no sequence started under it lacks a block, nor is one preempted for memory while
    only such run. Blocks that `paged` keeps free are kept in vain then: name `paged:headroom=0` behind it.
    """

    Options = ReservedOptions
    hookspec_range = (1, 1)

    def __init__(self, options: ReservedOptions, seed: int) -> None:
        self.output = options.output

    @hookimpl
    def reserve_blocks(self, sequence: SequenceView, view: EngineView) -> int:
        """Blocks of prompt and counted output, at least of what is known."""
        output = sequence.max_tokens if self.output == "max" else sequence.predicted_output_tokens
        tokens = max(sequence.num_prompt_tokens + output, sequence.num_tokens)
        return -(-tokens // view.block_size)
