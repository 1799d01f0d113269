"""Generation: the work of one HTTP request in the engine, from submission to the last piece or the cancellation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from core_engine import Caller, EngineClient, FirstTokenTiming, Outcome, Request, SamplingParams, SequenceOutput, Ticket
from core_engine.text import TextModel
from gateway.choice import ChoiceText, Piece
from gateway.echo import EchoedPrompt, PromptPieces
from gateway.errors import ApiError, limit_headers
from gateway.protocol.usage import Usage
from gateway.reader import PlainReader, Reader
from gateway.telemetry import RequestSpan

logger = logging.getLogger("jitney.gateway")


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """What is to be generated: `num_samples` answers to each prompt.

    `new_reader` makes what tells the parts of each answer apart; `shown_token_ids` are special tokens that it must see.
    """

    id: str
    model: str
    prompts: list[list[int]]
    sampling: SamplingParams
    num_samples: int
    stops: list[str]
    skip_special_tokens: bool
    priority: int | None
    cache_salt: str
    new_reader: Callable[[], Reader] = PlainReader
    shown_token_ids: frozenset[int] = frozenset()
    grammar_field: str = "response_format"  # of the request, that asked for a grammar
    echoes: Sequence[EchoedPrompt] = ()  # by prompt, where answers repeat them

    def echo(self, number: int) -> EchoedPrompt | None:
        """What answers repeat of a prompt."""
        return self.echoes[number] if self.echoes else None

    @property
    def needs_engine(self) -> bool:
        """Whether there is anything to compute."""
        return self.sampling.max_tokens != 0 or self.sampling.prompt_logprobs is not None

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of all prompts, each counted once."""
        return sum(map(len, self.prompts))

    def engine_requests(self, caller: Caller) -> list[Request]:
        """One request to the engine for each prompt."""
        class_name, priority = caller.place(self.priority)
        return [
            Request(
                id=f"{self.id}-{number}",
                model=self.model,
                prompt_token_ids=prompt,
                sampling=self.sampling,
                n=self.num_samples,
                tenant=caller.tenant,
                class_name=class_name,
                priority=priority,
                weight=caller.weight,
                cache_salt=self.cache_salt,
            )
            for number, prompt in enumerate(self.prompts)
        ]


class Generation:
    """Runs a plan. `close` must be called in the end, whatever happened: it cancels what still runs.

    Choices are numbered `prompt * num_samples + sample`. A plan with nothing to compute never reaches the engine.
    """

    def __init__(
        self,
        client: EngineClient,
        text_model: TextModel,
        plan: GenerationPlan,
        span: RequestSpan,
        caller: Caller,
    ) -> None:
        self.plan = plan
        self._caller = caller
        self._client = client
        self._span = span
        self._tickets: dict[int, Ticket] = {}
        self._waiting: dict[asyncio.Future[list[SequenceOutput]], int] = {}  # for news of a prompt, one of several
        self._unfinished = dict.fromkeys(range(len(plan.prompts)), plan.num_samples)  # choices of each prompt
        self._cached_tokens: dict[int, int] = {}  # by prompt
        self.timings: list[FirstTokenTiming] = []  # of the sequences that have a token
        self._choices = [
            ChoiceText(
                text_model,
                index,
                stops=plan.stops,
                min_tokens=plan.sampling.min_tokens,
                skip_special_tokens=plan.skip_special_tokens,
                reader=plan.new_reader(),
                shown_token_ids=plan.shown_token_ids,
                first_offset=len(echo.text) if (echo := plan.echo(number)) is not None else 0,
            )
            for number in range(len(plan.prompts))
            for index in self._indices(number)
        ]
        is_scored = plan.sampling.prompt_logprobs is not None
        self._prompts = [
            PromptPieces(len(prompt), plan.echo(number), self._indices(number), is_scored=is_scored)
            for number, prompt in enumerate(plan.prompts)
        ]

    @property
    def outcomes(self) -> list[Outcome | None]:
        """How each prompt ended; None for one that was cancelled and not heard of since."""
        return [ticket.outcome for ticket in self._tickets.values()]

    @property
    def finish_reasons(self) -> list[str]:
        """The reasons of the choices that ended."""
        return [choice.finish_reason for choice in self._choices if choice.finish_reason is not None]

    @property
    def limit_headers(self) -> dict[str, str]:
        """What admission had to say, for the headers of the answer."""
        headers: dict[str, str] = {}
        for ticket in self._tickets.values():
            headers.update(limit_headers(ticket.limits))
        return headers

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return Usage.of(
            self.plan.num_prompt_tokens,
            sum(choice.num_tokens for choice in self._choices),
            sum(self._cached_tokens.values()),
        )

    async def start(self) -> None:
        """Submit every prompt; returns once all are accepted, raises what the engine says if one isn't."""
        if not self.plan.needs_engine:
            return
        requests = self.plan.engine_requests(self._caller)
        self._span.submitted()
        async with asyncio.TaskGroup() as group:
            submissions = [group.create_task(self._submit(number, request)) for number, request in enumerate(requests)]
        for submission in submissions:
            if (error := submission.result()) is not None:
                raise error

    async def _submit(self, number: int, request: Request) -> Exception | None:
        # Errors are handed back, not raised, so that the first in order counts, not the first in time.
        try:
            self._tickets[number] = await self._client.submit(request)
        except Exception as error:
            return error
        return None

    @property
    def finished(self) -> bool:
        """Whether each choice has its finish_reason."""
        return not self._unfinished

    def begin(self) -> Iterator[Piece]:
        """What can be said before the engine says anything; all there is to say where it has nothing to compute."""
        for prompt in self._prompts:
            yield from prompt.begin()
        if not self.plan.needs_engine:
            for choice in self._choices:
                yield choice.end_empty()
            self._unfinished.clear()

    async def next(self) -> Iterable[Piece]:
        """What the choices gain next, as soon as it comes; not to be asked once all are finished.

        Raises EngineDied when the engine ends; so may what it returns, and ApiError for a sequence that failed.
        """
        if len(self._tickets) == 1:
            return self._take(0, await self._tickets[0].next())
        for number in self._unfinished.keys() - self._waiting.values():
            self._waiting[asyncio.ensure_future(self._tickets[number].next())] = number
        done, _ = await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)
        return self._take_several(done)

    def divert(self, ready: Callable[[], bool], show: Callable[[Piece], None]) -> None:
        """While `next` waits, and as long as it is `ready`, `show` at once what plain text gains: most tokens, by far.

        Without effect on a plan of several prompts.
        """
        if len(self._tickets) != 1:
            return

        def take(output: SequenceOutput) -> bool:
            is_usual = output.finish_reason is None and not output.prompt_logprobs
            if not is_usual or not self._choices[output.sample_index].is_plain or not ready():
                return False
            for piece in self._take(0, [output]):
                show(piece)
            return True

        (ticket,) = self._tickets.values()
        ticket.divert(take)

    def _take_several(self, done: Iterable[asyncio.Future[list[SequenceOutput]]]) -> Iterator[Piece]:
        for future in sorted(done, key=self._waiting.__getitem__):
            yield from self._take(self._waiting.pop(future), future.result())

    def _take(self, number: int, outputs: list[SequenceOutput]) -> Iterable[Piece]:
        """What the choices of a prompt gain by these."""
        if len(outputs) == 1 and not outputs[0].prompt_logprobs:  # as nearly always
            (output,) = outputs
            self._span.tokens(len(output.token_ids), number)
            piece = self._gain(number, output)
            return () if piece is None else (piece,)
        self._span.tokens(sum([len(output.token_ids) for output in outputs]), number)
        return self._take_all(number, outputs)

    def _take_all(self, number: int, outputs: list[SequenceOutput]) -> Iterator[Piece]:
        for output in outputs:
            if output.prompt_logprobs:
                yield from self._prompts[number].push(output.prompt_logprobs)
            if (piece := self._gain(number, output)) is not None:
                yield piece

    def _gain(self, number: int, output: SequenceOutput) -> Piece | None:
        """What one choice gains."""
        if output.finish_reason is not None:
            self._check(output)
        if output.timing is not None:
            self.timings.append(output.timing)
        if output.sample_index == 0:  # the others share what the first computes
            self._cached_tokens[number] = output.num_cached_tokens
        piece = self._choices[number * self.plan.num_samples + output.sample_index].push(output)
        if piece is not None and piece.finish_reason is not None:
            self._end_choice(number)
        return piece

    def _end_choice(self, number: int) -> None:
        """Take note that a choice of this prompt has its finish_reason."""
        self._unfinished[number] -= 1
        if not self._unfinished[number]:
            del self._unfinished[number]
            if self._tickets[number].outcome is None:
                self._tickets[number].cancel()  # stop strings ended what the engine would go on with

    def _indices(self, number: int) -> range:
        """The choices of a prompt."""
        return range(number * self.plan.num_samples, (number + 1) * self.plan.num_samples)

    def _check(self, output: SequenceOutput) -> None:
        if output.finish_reason in {"error", "cancelled", "rejected"}:
            logger.error("the engine gave up on %s: %s", output.request_id, output.error or output.finish_reason)
            raise ApiError(500, "The engine could not compute this request.", code="engine_error")

    def close(self) -> None:
        """Cancel whatever still runs; calling it again changes nothing."""
        for future in self._waiting:
            if not future.cancel():
                future.exception()  # nobody else looks at it, which asyncio would complain about
        self._waiting.clear()
        for ticket in self._tickets.values():
            if ticket.outcome is None:
                ticket.cancel()
