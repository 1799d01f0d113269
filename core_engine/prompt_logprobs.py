"""PromptLogprobs: how probable the tokens of a prompt were, packed."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import msgspec

_ITEM_BYTES = 4


class PromptLogprobs(msgspec.Struct, array_like=True, frozen=True):
    """Log-probabilities of the prompt tokens from position `first` on, and of the best tokens at their places.

    `logprobs` (float32) and `ranks` (int32, 1 is the best) hold one a token; `rival_ids` (int32) and
    `rival_logprobs` (float32) `num_rivals` a token, best first. They are of the model's own distribution, like
    TokenLogprobs. Position 0 has none, because nothing comes before it. Bytes in the machine's order: a long prompt
    has more of them than the engine's thread should make objects of.
    """

    first: int
    num_rivals: int
    logprobs: bytes
    ranks: bytes
    rival_ids: bytes
    rival_logprobs: bytes

    def __len__(self) -> int:
        """How many tokens."""
        return len(self.logprobs) // _ITEM_BYTES

    @classmethod
    def pack(cls, first: int, tokens: list[tuple[float, int, list[tuple[int, float]]]]) -> PromptLogprobs:
        """The inverse of `tokens`; all must have the same number of rivals."""
        rivals = [rival for _, _, mine in tokens for rival in mine]
        return cls(
            first,
            len(tokens[0][2]),
            array("f", [logprob for logprob, _, _ in tokens]).tobytes(),
            array("i", [rank for _, rank, _ in tokens]).tobytes(),
            array("i", [token_id for token_id, _ in rivals]).tobytes(),
            array("f", [logprob for _, logprob in rivals]).tobytes(),
        )

    @property
    def num_bytes(self) -> int:
        """Size of what is packed."""
        return len(self) * 2 * _ITEM_BYTES * (1 + self.num_rivals)

    def tokens(self) -> Iterator[tuple[float, int, list[tuple[int, float]]]]:
        """Log-probability, rank and rivals, (token id, log-probability), of one token after the other."""
        logprobs, rival_logprobs = array("f", self.logprobs), array("f", self.rival_logprobs)
        ranks, rival_ids = array("i", self.ranks), array("i", self.rival_ids)
        count = self.num_rivals
        for place, (logprob, rank) in enumerate(zip(logprobs, ranks, strict=True)):
            mine = slice(place * count, (place + 1) * count)
            yield logprob, rank, list(zip(rival_ids[mine], rival_logprobs[mine], strict=True))


def prompt_positions(num_prompt_tokens: int, first_row: int, end_row: int) -> range:
    """Positions of the prompt tokens that computing `first_row .. end_row - 1` tells about: each the next one."""
    return range(first_row + 1, min(end_row, num_prompt_tokens - 1) + 1)
