"""Head: the last stretch of a model, from hidden states to logits, for some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Head:
    """Runs a model's own code after its decoder, scales and caps included.

    For that the decoder is made to answer with hidden states that are there already.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        decoder = model.get_decoder()
        self._decoder = getattr(model, "model", model) if decoder is model else decoder

    @contextmanager
    def listening(self, answers: list[Any]) -> Iterator[None]:
        """Append to `answers` what the decoder answers meanwhile."""
        handle = self._decoder.register_forward_hook(lambda module, args, answer: answers.append(answer))
        try:
            yield
        finally:
            handle.remove()

    @staticmethod
    def can_use(answers: list[Any], num_rows: int) -> bool:
        """Whether this is one answer whose first part is the hidden states `[1, rows, size]` of that many rows."""
        hidden = answers[0][0] if len(answers) == 1 else None
        return isinstance(hidden, torch.Tensor) and hidden.dim() == 3 and hidden.shape[1] >= num_rows

    def logits(self, answer: Any, rows: torch.Tensor) -> torch.Tensor:
        """Logits `[rows, vocab_size]` of these rows of a decoder's answer."""
        hidden = answer[0].index_select(1, rows)
        if isinstance(answer, dict):
            part: Any = type(answer)(**{**answer, "last_hidden_state": hidden})
        else:
            part = (hidden, *answer[1:])
        self._decoder.forward = lambda *args, **kwargs: part
        try:
            return self._model(input_ids=rows.new_zeros(1, rows.shape[0]), use_cache=False).logits[0]
        finally:
            del self._decoder.forward
