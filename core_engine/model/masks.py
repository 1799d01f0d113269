"""Which tokens a request wants to be drawn: bans of single tokens and allow lists, as -inf in the logits."""

from __future__ import annotations

import torch

from core_engine.model.layout import upload_lists
from core_engine.request import Sequence


def ban(logits: torch.Tensor, sequences: list[Sequence], eos_token_ids: tuple[int, ...]) -> None:
    """Set tokens that `min_tokens` or `bad_words` forbid to -inf in place."""
    vocab_size = logits.shape[1]
    banned = [
        row * vocab_size + token
        for row, sequence in enumerate(sequences)
        for token in banned_tokens(sequence, eos_token_ids)
        if 0 <= token < vocab_size
    ]
    if banned:
        (where,) = upload_lists([banned], logits.device)
        logits.view(-1).index_fill_(0, where, float("-inf"))


def banned_tokens(sequence: Sequence, eos_token_ids: tuple[int, ...]) -> list[int]:
    """Tokens that must not come next.

    Ends and stops while the output is shorter than `min_tokens` (an ignored end of sequence ends
    nothing, so it stays, but with a grammar, whose end it is), and the last token of each bad word
    whose other tokens were just said.
    """
    sampling = sequence.sampling
    banned: list[int] = []
    if sequence.matcher is not None and sampling.ignore_eos:
        banned += eos_token_ids
    if sequence.num_output_tokens < sampling.min_tokens:
        banned += sampling.stop_token_ids
        if not sampling.ignore_eos:
            banned += eos_token_ids
    for word in sampling.bad_words_token_ids:
        beginning = len(word) - 1
        if beginning == 0 or (
            0 < beginning <= sequence.num_tokens and sequence.token_ids[-beginning:] == list(word[:-1])
        ):
            banned.append(word[-1])
    return banned


def restrict(logits: torch.Tensor, sequences: list[Sequence]) -> None:
    """Set tokens outside `allowed_token_ids` to -inf in place."""
    vocab_size = logits.shape[1]
    for row, sequence in enumerate(sequences):
        allowed_ids = sequence.sampling.allowed_token_ids
        if allowed_ids is not None:
            (ids,) = upload_lists([[token for token in allowed_ids if 0 <= token < vocab_size]], logits.device)
            kept = torch.full_like(logits[row], float("-inf")).index_copy_(0, ids, logits[row].index_select(0, ids))
            logits[row] = kept


def is_restrained(sequence: Sequence) -> bool:
    """Whether `ban` or `restrict` may have something to do."""
    sampling = sequence.sampling
    return bool(
        sampling.min_tokens
        or sampling.bad_words_token_ids
        or sampling.allowed_token_ids is not None
        or (sequence.matcher is not None and sampling.ignore_eos)
    )
