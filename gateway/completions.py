"""Legacy completions: what a request asks for, and how its answer is written."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UNSET, UnsetType

from gateway.choice import Piece, TokenEntry, join_pieces
from gateway.echo import EchoedPrompt, check_repeated, echoed_prompt, prompt_entries
from gateway.errors import invalid
from gateway.generation import GenerationPlan
from gateway.logprobs import LEAST, LogprobWriter, finite, prompt_logprobs
from gateway.operation import ChunkWriter, new_id
from gateway.prompts import completion_prompts, separate_prompts
from gateway.protocol.completions import Completion, CompletionChoice, CompletionRequest
from gateway.protocol.fields import PromptTokenLogprobs
from gateway.protocol.usage import Usage
from gateway.sampling import sampling_params
from gateway.served_model import Serving
from gateway.structured import check_copies, grammar_field
from gateway.unsupported import refuse_unsupported_completion

DEFAULT_MAX_TOKENS = 16
MAX_SEQUENCES = 1024  # of all prompts together


class CompletionOperation:
    """One request to `/v1/completions`."""

    name = "text_completion"

    def __init__(self, fields: CompletionRequest) -> None:
        self.fields = fields

    @property
    def max_tokens(self) -> int:
        """The caller's bound on new tokens, which has a default here."""
        return DEFAULT_MAX_TOKENS if self.fields.max_tokens is None else self.fields.max_tokens

    def plan(self, serving: Serving) -> GenerationPlan:
        """Check and tokenise; see Operation."""
        fields = self.fields
        refuse_unsupported_completion(fields)
        num_choices = fields.n or 1
        num_samples = fields.best_of or num_choices
        # The best are chosen by log-probability, asked for or not.
        logprobs = 0 if fields.logprobs is None and num_samples > num_choices else fields.logprobs
        echoed_logprobs = fields.logprobs if fields.echo else None
        scores = [number for number in (echoed_logprobs, fields.prompt_logprobs) if number is not None]
        sampling = sampling_params(
            fields,
            serving.text_model,
            serving.info,
            output_limit=(self.max_tokens, "max_tokens"),
            logprobs=logprobs,
            prompt_logprobs=max(scores, default=None),
        )
        prompts = completion_prompts(fields, serving)
        if len(prompts) * num_samples > MAX_SEQUENCES:
            raise invalid(
                f"{len(prompts)} prompts with {num_samples} samples each are more than {MAX_SEQUENCES} completions.",
                param="n" if fields.best_of is None else "best_of",
            )
        check_copies(sampling.grammar, len(prompts), grammar_field(fields))
        if fields.echo or scores:
            param = "echo" if fields.echo else "prompt_logprobs"
            check_repeated(prompts, num_samples, sampling.prompt_logprobs or 0, param)
        return GenerationPlan(
            id=new_id("cmpl"),
            model=serving.info.model,
            prompts=prompts,
            sampling=sampling,
            num_samples=num_samples,
            stops=fields.stops,
            skip_special_tokens=fields.skip_special_tokens is not False,
            priority=fields.priority,
            cache_salt=fields.cache_salt or "",
            grammar_field=grammar_field(fields),
            echoes=self._echoes(prompts, serving) if fields.echo else (),
        )

    def _echoes(self, prompts: list[list[int]], serving: Serving) -> list[EchoedPrompt]:
        surrounds = self.fields.add_special_tokens is not False
        return [
            echoed_prompt(serving.text_model, token_ids, is_surrounded=surrounds and isinstance(given, str))
            for token_ids, given in zip(prompts, separate_prompts(self.fields.prompt, "prompt"), strict=True)
        ]

    def writer(self, plan: GenerationPlan, serving: Serving) -> CompletionWriter:
        """A writer for the answer."""
        return CompletionWriter(self.fields, plan, serving)


class CompletionWriter(ChunkWriter):
    """Writes one answer; see Writer. Choices are numbered `prompt * n + j`."""

    def __init__(self, fields: CompletionRequest, plan: GenerationPlan, serving: Serving) -> None:
        super().__init__(plan, fields)
        self._num_choices = fields.n or 1
        self._created = int(time.time())
        self._usage: UnsetType | None = None if self._with_usage else UNSET
        self._logprobs = (
            LogprobWriter(serving.text_model, fields.logprobs, skip_special_tokens=plan.skip_special_tokens)
            if fields.logprobs is not None
            else None
        )
        self._text_model = serving.text_model
        self._num_prompt_rivals = fields.prompt_logprobs
        self._begun: set[int] = set()

    def chunks(self, piece: Piece) -> Iterator[bytes]:
        """The text, and the reason by itself in the end."""
        for part in piece.parts():
            told = bool(part.entries or part.prompt_tokens)
            yield self._encode([self._choice(piece.index, part, with_logprobs=told)], self._usage)

    def text_chunk(self, index: int, text: str) -> bytes:
        """The text alone."""
        return self._encode([CompletionChoice(index=index, text=text)], self._usage)

    def usage_chunk(self, usage: Usage) -> bytes:
        """A chunk without choices."""
        return self._encode([], usage)

    def whole(self, pieces: list[Piece], usage: Usage) -> bytes:
        """The whole answer, with the best samples of each prompt."""
        samples = join_pieces(pieces)
        choices = []
        for number in range(len(self._plan.prompts)):
            first = number * self._plan.num_samples
            candidates = [samples[index] for index in range(first, first + self._plan.num_samples)]
            told = self._prompt_logprobs(number, samples[first])
            if self._num_choices < len(candidates):
                candidates = sorted(candidates, key=_mean_logprob, reverse=True)[: self._num_choices]
            first = number * self._num_choices
            choices += [self._choice(first + place, sample, told) for place, sample in enumerate(candidates)]
        return self._encode(choices, usage)

    def _choice(
        self,
        index: int,
        piece: Piece,
        told: PromptTokenLogprobs | UnsetType = UNSET,
        *,
        with_logprobs: bool = True,
    ) -> CompletionChoice:
        first = index not in self._begun
        self._begun.add(index)
        prompt = self._plan.prompts[index // self._num_choices]
        assert piece.finish_reason != "tool_calls"  # text isn't read for calls here
        return CompletionChoice(
            index=index,
            text=piece.text,
            logprobs=self._logprobs.legacy(self._entries(index, piece)) if self._logprobs and with_logprobs else None,
            finish_reason=piece.finish_reason,
            token_ids=piece.token_ids if self._with_token_ids else UNSET,
            prompt_token_ids=prompt if self._with_token_ids and first else UNSET,
            prompt_logprobs=told,
        )

    def _entries(self, index: int, piece: Piece) -> Iterable[TokenEntry]:
        """Those of the prompt, where it is echoed, and those of the output."""
        number = index // self._num_choices
        echo = self._plan.echo(number)
        if echo is None:
            return piece.entries
        return itertools.chain(prompt_entries(piece, self._plan.prompts[number], echo), piece.entries)

    def _prompt_logprobs(self, number: int, first: Piece) -> PromptTokenLogprobs | UnsetType:
        """What the first sample, which computed it, tells about a prompt."""
        if self._num_prompt_rivals is None:
            return UNSET
        prompt = self._plan.prompts[number]
        return prompt_logprobs(self._text_model, prompt, first.prompt_logprobs, self._num_prompt_rivals)

    def _encode(self, choices: list[CompletionChoice], usage: Usage | UnsetType | None) -> bytes:
        return msgspec.json.encode(
            Completion(id=self._plan.id, created=self._created, model=self._plan.model, choices=choices, usage=usage)
        )


def _mean_logprob(sample: Piece) -> float:
    """How probable the model finds a sample, per token; one without tokens comes last."""
    logprobs = [finite(entry.logprobs.logprob) for entry in sample.entries if entry.logprobs is not None]
    return sum(logprobs) / len(logprobs) if logprobs else LEAST
