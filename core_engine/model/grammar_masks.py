"""GrammarMasks: what each row's grammar allows, filled in a thread of its own while the model runs."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from core_engine.grammars.matcher import Matcher
from core_engine.model.layout import upload, upload_lists
from core_engine.request import Sequence

if TYPE_CHECKING:
    from llguidance import LLExecutor

_BITS = 32


@dataclass(frozen=True, slots=True)
class RowMasks:
    """Masks of some rows: bit i of `words[j, i // 32]` allows token i to row `rows[j]`."""

    rows: list[int]
    words: torch.Tensor  # int32 [rows, words], on the host

    def apply(self, logits: torch.Tensor) -> None:
        """Set what the grammars exclude to -inf in place; tokens beyond a mask's end are excluded too."""
        (rows,) = upload_lists([self.rows], logits.device)
        shifts = torch.arange(_BITS, dtype=torch.int32, device=logits.device)
        words = upload(self.words, logits.device).unsqueeze(-1)
        allowed = (words >> shifts).bitwise_and_(1).bool().flatten(1)
        missing = logits.shape[1] - allowed.shape[1]
        if missing:  # negative where the last word has bits to spare
            allowed = torch.nn.functional.pad(allowed, (0, missing))
        logits.index_copy_(0, rows, logits.index_select(0, rows).masked_fill_(~allowed, float("-inf")))


class GrammarMasks:
    """Fills masks for one batch at a time. The library lets Python run meanwhile."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._num_words = -(-vocab_size // _BITS)
        self._pinned = device.type == "cuda"
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="masks")

    def begin(self, sequences: list[Sequence]) -> Future[RowMasks] | None:
        """Start to fill the masks of those that have a grammar; None where none has."""
        found = {row: sequence.matcher for row, sequence in enumerate(sequences) if sequence.matcher is not None}
        return self._pool.submit(self._fill, found) if found else None

    def _fill(self, matchers: dict[int, Matcher]) -> RowMasks:
        words = torch.empty((len(matchers), self._num_words), dtype=torch.int32, pin_memory=self._pinned)
        Matcher.fill(self._executor, list(matchers.values()), words.data_ptr(), words.stride(0) * words.itemsize)
        return RowMasks(list(matchers), words)

    @cached_property
    def _executor(self) -> LLExecutor:
        from llguidance import LLExecutor

        return LLExecutor(1)
