"""GrammarMasks: what each row's grammar allows, as -inf in the logits."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch

from core_engine.grammars.matcher import Matcher
from core_engine.model.layout import upload
from core_engine.request import Sequence

if TYPE_CHECKING:
    from llguidance import LLExecutor

_WORD_BITS = 32
_BYTE_BITS = 8


class RowMasks:
    """Masks of all rows: bit i of `words[row, i // 32]` allows token i.

    `rows` are those with a grammar, to which tokens beyond the end are not allowed; the others allow everything.
    """

    def __init__(self, rows: list[int], words: torch.Tensor) -> None:
        self.rows = rows
        self._words = words  # int32, on the host

    def apply(self, logits: torch.Tensor) -> None:
        """Set what the grammars exclude to -inf in place, in `[rows, vocab_size]`."""
        excluded_bytes = upload(self._words.bitwise_not().view(torch.uint8), logits.device)
        excluded = _bits_of_bytes(logits.device).index_select(0, excluded_bytes.flatten().int())
        excluded = excluded.view(torch.bool).view(logits.shape[0], -1)
        missing = logits.shape[1] - excluded.shape[1]
        if missing:  # below 0 where the last word has bits to spare
            excluded = torch.nn.functional.pad(excluded, (0, missing))
        if missing > 0:
            excluded[self.rows, -missing:] = True
        logits.masked_fill_(excluded, float("-inf"))


class GrammarMasks:
    """Fills the masks of a batch. Called once its pass is launched: a GPU computes meanwhile.

    On a CPU, whose cores the pass fills, a thread beside it was measured to cost more than it saves.
    """

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._num_words = -(-vocab_size // _WORD_BITS)
        self._is_pinned = device.type == "cuda"

    def fill(self, sequences: list[Sequence]) -> RowMasks | None:
        """The masks of these rows; None where no row has a grammar."""
        matchers = {row: sequence.matcher for row, sequence in enumerate(sequences) if sequence.matcher is not None}
        if not matchers:
            return None
        num_rows, row_bytes = len(sequences), self._num_words * _WORD_BITS // _BYTE_BITS
        words = torch.full((num_rows, self._num_words), -1, dtype=torch.int32, pin_memory=self._is_pinned)
        Matcher.fill(self._executor, matchers, words.data_ptr(), num_rows=num_rows, row_bytes=row_bytes)
        return RowMasks(list(matchers), words)

    @cached_property
    def _executor(self) -> LLExecutor:
        from llguidance import LLExecutor

        return LLExecutor(1)


def _bits_of_bytes(device: torch.device) -> torch.Tensor:
    """For each byte its eight bits as bools, the least significant first, packed into an int64."""
    bits = torch.arange(1 << _BYTE_BITS, device=device).unsqueeze(1) >> torch.arange(_BYTE_BITS, device=device)
    return bits.bitwise_and_(1).bool().view(torch.int64).flatten()
