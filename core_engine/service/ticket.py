"""Ticket: one accepted request, from its acceptance to its last token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from core_engine.errors import EngineDied
from core_engine.messages import Accepted, Outcome, SequenceOutput


class Ticket:
    """The gateway's hold on a request that the engine has accepted.

    `max_tokens` is the bound that holds for each sequence, `limits` what admission had to say for
    the `x-ratelimit-*` headers. `outcome` is set with the last output. What nobody has fetched yet
    is kept, at most `max_tokens` tokens of each sequence and the log-probabilities of the prompt.
    """

    def __init__(self, accepted: Accepted, cancel: Callable[[str], None]) -> None:
        self.request_id = accepted.request_id
        self.max_tokens = accepted.max_tokens
        self.limits = accepted.limits
        self.outcome: Outcome | None = None
        self._cancel = cancel
        self._cancelled = False
        self._pending: list[SequenceOutput] = []
        self._death: str | None = None
        self._news: asyncio.Future[None] | None = None  # that a reader waits for
        self._take: Callable[[SequenceOutput], bool] | None = None
        self._failure: Exception | None = None  # of `take`

    async def next(self) -> list[SequenceOutput]:
        """Wait for new tokens; return all there are, one output for each sequence that has some.

        For one reader at a time. May be cancelled without losing anything. Raises EngineDied once the engine has ended
        and everything it had sent is fetched; RuntimeError after the last output or a cancellation; what `take` raised.
        """
        while self._failure is None and not self._pending:
            if self._cancelled:
                raise RuntimeError(f"request {self.request_id} has been cancelled")
            if self.outcome is not None:
                raise RuntimeError(f"request {self.request_id} has ended")
            if self._death is not None:
                raise EngineDied(self._death)
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        if self._failure is not None:
            raise self._failure
        pending, self._pending = self._pending, []
        return pending if len(pending) == 1 else _merged(pending)

    def divert(self, take: Callable[[SequenceOutput], bool]) -> None:
        """While a reader waits, offer each output to `take` first: what it answers True to wakes nobody.

        For thousands of tokens a second: a reader that is woken for each takes longer than what it does with it.
        """
        self._take = take

    def cancel(self) -> None:
        """Say that nobody wants this request any more; without effect if it has ended or was cancelled."""
        if self._cancelled or self.outcome is not None or self._death is not None:
            return
        self._cancelled = True
        self._pending.clear()
        self._cancel(self.request_id)
        self._end()

    def deliver(self, output: SequenceOutput) -> None:
        """Take in what an iteration gave; called by the client."""
        if not self._cancelled and not self._taken(output):
            self._pending.append(output)
            self._wake()

    def finish(self, outcome: Outcome) -> None:
        """Take in how the request ended; called by the client."""
        self.outcome = outcome
        self._end()

    def die(self, reason: str) -> None:
        """Take in that the engine has ended; called by the client."""
        self._death = reason
        self._end()

    def _taken(self, output: SequenceOutput) -> bool:
        news = self._news
        if self._take is None or news is None or news.done():  # a reader that doesn't wait is at what came before
            return False
        try:
            return self._take(output)
        except Exception as error:
            self._failure = error
            self._wake()
            return True

    def _end(self) -> None:
        self._take = None  # with the response that it writes to, which only the collector would free else
        self._wake()

    def _wake(self) -> None:
        news = self._news
        if news is not None and not news.done():
            news.set_result(None)


def _merged(outputs: list[SequenceOutput]) -> list[SequenceOutput]:
    """One output for each sequence, in the order in which they came first."""
    by_sequence: dict[int, list[SequenceOutput]] = {}
    for output in outputs:
        by_sequence.setdefault(output.sample_index, []).append(output)
    return [_merge(successive) for successive in by_sequence.values()]


def _merge(outputs: list[SequenceOutput]) -> SequenceOutput:
    """One output out of several successive ones of a sequence."""
    if len(outputs) == 1:
        return outputs[0]
    last = outputs[-1]
    logprobs = [logprob for output in outputs for logprob in output.logprobs or ()]
    return SequenceOutput(
        last.request_id,
        last.sample_index,
        [token_id for output in outputs for token_id in output.token_ids],
        logprobs or None,
        last.finish_reason,
        last.stop_token_id,
        last.error,
        last.num_cached_tokens,
        [piece for output in outputs for piece in output.prompt_logprobs],
        next((output.timing for output in outputs if output.timing is not None), None),
    )
