"""Sampler: from the logits of a batch to one token a row, everything vectorised over the rows.

What no row asks for is not computed: a batch that is greedy throughout takes the best tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core_engine.messages import TokenLogprobs
from core_engine.model import drawing, masks, penalties
from core_engine.model.grammar_masks import RowMasks
from core_engine.model.greedy import Chooser, best_tokens
from core_engine.model.layout import download, upload, upload_lists
from core_engine.model.logprobs import Logprobs, raw_logprobs
from core_engine.model.randomness import uniforms
from core_engine.request import Sequence

_NOT_FINITE = -1
_NOTHING_ALLOWED = -2
_REASONS = {
    _NOT_FINITE: "the model computed logits that are not finite",
    _NOTHING_ALLOWED: "no token is left to choose from: masks and bans exclude the whole vocabulary",
}


@dataclass(slots=True)
class Sampled:
    """What was sampled, on the device until `fetch`ed."""

    token_ids: torch.Tensor  # [rows]; a negative one says why there is none
    logprobs: Logprobs | None

    def to_host(self) -> None:
        """Start the copies to the host, without waiting for them."""
        self.token_ids = download(self.token_ids)
        if self.logprobs is not None:
            self.logprobs.to_host()

    def fetch(self) -> tuple[list[int], list[TokenLogprobs | None], dict[int, str]]:
        """Token ids (-1 where there is none), log-probabilities (empty if nobody asked), and failures by row."""
        token_ids = self.token_ids.tolist()
        failures = {row: _REASONS[token] for row, token in enumerate(token_ids) if token < 0}
        logprobs = [] if self.logprobs is None else self.logprobs.fetch(len(token_ids))
        return [max(token, -1) for token in token_ids], logprobs, failures


class Sampler:
    """Draws by the SamplingParams of each row; holds no state, so a row's token depends on that row alone."""

    def __init__(self, eos_token_ids: tuple[int, ...], choose_best: Chooser = best_tokens) -> None:
        self._eos_token_ids = eos_token_ids
        self._choose_best = choose_best

    def sample(self, logits: torch.Tensor, sequences: list[Sequence], grammar_masks: RowMasks | None = None) -> Sampled:
        """Sample from `logits` `[rows, vocab_size]` of any float type, one row a sequence.

        Where the logits hold NaN or +inf, or nothing is allowed, the row has no token and the others are
        not touched by it.
        """
        best = self._choose_best(logits)
        logprobs_wanted = [
            (row, s.sampling.logprobs) for row, s in enumerate(sequences) if s.sampling.logprobs is not None
        ]
        adjusted, allowed = self._adjust(logits, sequences, grammar_masks)
        drawn = [row for row, sequence in enumerate(sequences) if sequence.sampling.temperature > 0.0]
        any_greedy = len(drawn) < len(sequences)
        token_ids = adjusted.argmax(-1) if any_greedy and allowed is not None else best.clamp_min(0)
        if drawn:
            token_ids = self._draw(adjusted, token_ids, [sequences[row] for row in drawn], drawn)
        logprobs = raw_logprobs(logits, token_ids, logprobs_wanted) if logprobs_wanted else None
        if allowed is not None:
            token_ids = token_ids.masked_fill(~allowed, _NOTHING_ALLOWED)
        return Sampled(token_ids.masked_fill(best < 0, _NOT_FINITE), logprobs)

    def _adjust(
        self, logits: torch.Tensor, sequences: list[Sequence], grammar_masks: RowMasks | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Float32 logits after penalties, biases, masks and bans, and which rows have anything left.

        Where there is nothing to adjust, the logits as they are, and None.
        """
        restrained = any(map(masks.is_restrained, sequences))
        if grammar_masks is None and not restrained and all(map(penalties.is_neutral, sequences)):
            return logits, None
        adjusted = logits.to(torch.float32, copy=True)
        penalties.adjust(adjusted, sequences)
        if grammar_masks is not None:
            grammar_masks.apply(adjusted)
        if restrained:
            self._restrain(adjusted, sequences, grammar_masks)
        return adjusted, adjusted.amax(-1) > float("-inf")

    def _restrain(self, adjusted: torch.Tensor, sequences: list[Sequence], grammar_masks: RowMasks | None) -> None:
        """Bans and allow lists, which yield to a grammar where they would leave it nothing."""
        rows = [row for row in grammar_masks.rows if masks.is_restrained(sequences[row])] if grammar_masks else []
        (index,) = upload_lists([rows], adjusted.device)
        by_grammar = adjusted.index_select(0, index)
        masks.ban(adjusted, sequences, self._eos_token_ids)
        masks.restrict(adjusted, sequences)
        if rows:
            restrained = adjusted.index_select(0, index)
            has_left = restrained.amax(-1, keepdim=True) > float("-inf")
            adjusted.index_copy_(0, index, torch.where(has_left, restrained, by_grammar))

    @staticmethod
    def _draw(
        adjusted: torch.Tensor, token_ids: torch.Tensor, sequences: list[Sequence], rows: list[int]
    ) -> torch.Tensor:
        numbers = uniforms(
            [s.seed for s in sequences], [s.sample_index for s in sequences], [s.num_tokens for s in sequences]
        )
        index = upload(torch.tensor(rows), adjusted.device)
        wanted = adjusted if len(rows) == adjusted.shape[0] else adjusted.index_select(0, index)
        chosen = drawing.draw(
            wanted.float(),
            [s.sampling for s in sequences],
            upload(torch.from_numpy(numbers), adjusted.device),
        )
        return token_ids.index_copy(0, index, chosen)
