"""What an answer repeats of a prompt: its text, and how probable each token was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core_engine import PromptLogprobs, TokenLogprobs
from core_engine.text import IncrementalDetokenizer, TextModel
from gateway.choice import Piece, TokenEntry
from gateway.deltas import TextDelta
from gateway.errors import invalid

MAX_REPEATED = 1 << 20  # tokens and log-probabilities of prompts in all choices of an answer together


@dataclass(frozen=True, slots=True)
class EchoedPrompt:
    """The text of a prompt; `offsets` counts the characters before each token, and before the end."""

    text: str
    offsets: list[int]


def echoed_prompt(text_model: TextModel, token_ids: Sequence[int], *, is_surrounded: bool) -> EchoedPrompt:
    """Spell a prompt as the model reads it, special tokens too.

    Where the tokenizer surrounded a text with tokens of its own (`is_surrounded`), these are left out.
    """
    before, after = text_model.outer_token_ids if is_surrounded else ((), ())
    start = len(before) if tuple(token_ids[: len(before)]) == before else 0
    end = len(token_ids) - (len(after) if tuple(token_ids[len(token_ids) - len(after) :]) == after else 0)
    detokenizer = IncrementalDetokenizer(text_model, skip_special_tokens=False)
    text, offsets = "", []
    for position, token_id in enumerate(token_ids):
        offsets.append(len(text))
        if start <= position < end:
            new = detokenizer.push((token_id,))
            text += new if text else text_model.without_leading_space(new)
    text += detokenizer.flush()
    return EchoedPrompt(text, [*offsets, len(text)])


class PromptPieces:
    """Makes the pieces by which the choices of one prompt begin: all of them if it is echoed, else only the first.

    With log-probabilities (`is_scored`) a piece comes as soon as those of its tokens are there, for the first choice;
    the others, which the engine starts later, get everything at the end.
    """

    def __init__(self, num_tokens: int, echo: EchoedPrompt | None, indices: range, *, is_scored: bool) -> None:
        self._num_tokens = num_tokens
        self._echo = echo
        self._indices = indices if echo is not None else indices[:1]
        self._is_scored = is_scored
        self._told: list[tuple[range, list[PromptLogprobs]]] = []

    def begin(self) -> Iterator[Piece]:
        """What can be said before the engine says anything."""
        if self._is_scored and self._num_tokens > 1:
            return
        if self._is_scored or self._echo is not None:
            for index in self._indices:
                yield self._piece(index, range(self._num_tokens), [])

    def push(self, told: list[PromptLogprobs]) -> Iterator[Piece]:
        """Take what the engine tells, in order of position."""
        for scores in told:
            positions = range(scores.first if self._told else 0, scores.first + len(scores))
            self._told.append((positions, [scores]))
            yield self._piece(self._indices[0], positions, [scores])
            if positions.stop == self._num_tokens:
                for index in self._indices[1:]:
                    for earlier, its_scores in self._told:
                        yield self._piece(index, earlier, its_scores)

    def _piece(self, index: int, positions: range, scores: list[PromptLogprobs]) -> Piece:
        echo = self._echo
        text = "" if echo is None else echo.text[echo.offsets[positions.start] : echo.offsets[positions.stop]]
        return Piece(index, [TextDelta(text)], prompt_tokens=positions, prompt_logprobs=scores)


def prompt_entries(piece: Piece, token_ids: list[int], echo: EchoedPrompt) -> Iterator[TokenEntry]:
    """The entries of the prompt's tokens in a piece; the first token of a prompt has no log-probability."""
    scores = (score for told in piece.prompt_logprobs for score in told.tokens())
    for position in piece.prompt_tokens:
        logprobs = None
        if position > 0:
            logprob, _, rivals = next(scores)
            logprobs = TokenLogprobs(logprob, rivals)
        yield TokenEntry(token_ids[position], logprobs, echo.offsets[position])


def check_repeated(prompts: list[list[int]], num_choices: int, num_rivals: int, param: str) -> None:
    """Raise a 400 where an answer would repeat more of its prompts than is good for anybody."""
    num_tokens = sum(map(len, prompts)) * num_choices
    if num_tokens * (1 + num_rivals) > MAX_REPEATED:
        raise invalid(
            f"The answer would repeat {num_tokens} tokens of prompts with {num_rivals} rivals each, which is more than "
            f"{MAX_REPEATED} in all. Send fewer or shorter prompts, or ask for fewer choices or log-probabilities.",
            param=param,
        )
