"""EngineClient: the asyncio side of an engine process; requests go in, tickets come out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from core_engine.config import EngineConfig
from core_engine.errors import EngineDied, EngineUnavailable, InvalidRequest, Overloaded
from core_engine.messages import (
    Accepted,
    Answer,
    Cancel,
    DescribePolicies,
    DescribeRequest,
    EngineInfo,
    FromEngine,
    IterationOutput,
    Query,
    Rejected,
    Submit,
    SwapPolicies,
)
from core_engine.request import Request
from core_engine.service.supervisor import Patience, State, Supervisor
from core_engine.service.ticket import Ticket

_log = logging.getLogger("jitney.service")


class EngineClient:
    """Runs an engine in a process of its own, which is restarted when it crashes or hangs.

    Belongs to one event loop. `listeners` are called, in the loop, with every message of the engine
    that runs; they must not block. At most `max_unanswered` requests are sent and not heard of.
    """

    def __init__(self, config: EngineConfig, *, max_unanswered: int = 1024, patience: Patience | None = None) -> None:
        self.listeners: list[Callable[[FromEngine], None]] = []
        self._max_unanswered = max_unanswered
        self._unanswered: dict[str, asyncio.Future[Ticket]] = {}
        self._tickets: dict[str, Ticket] = {}
        self._queries: dict[int, asyncio.Future[Answer]] = {}
        self._num_queries = 0
        self._longest_iteration_seconds = 0.0
        self._changed = asyncio.Event()
        self._supervisor = Supervisor(
            config,
            patience or Patience(),
            has_work=lambda: bool(self._unanswered or self._tickets),
            on_message=self._hear,
            on_death=self._bury,
            on_change=self._announce,
        )

    @property
    def state(self) -> State:
        """`starting`, `ready`, `restarting` after a crash, `failed` for good, or `stopped`."""
        return self._supervisor.state

    @property
    def failure(self) -> str | None:
        """Why the engine has failed for good, in words for a person; None if it hasn't."""
        return self._supervisor.failure

    @property
    def info(self) -> EngineInfo | None:
        """What the engine serves, as the latest that was ready said; None before the first."""
        return self._supervisor.info

    @property
    def model_directory(self) -> str | None:
        """Where the model's files are, once they are in place."""
        return self._supervisor.model_directory

    @property
    def epoch(self) -> int:
        """Number of the incarnation that runs, from 1 on."""
        return self._supervisor.epoch

    @property
    def engine_pid(self) -> int | None:
        """Process id of the engine, while there is one."""
        return self._supervisor.pid

    async def start(self) -> None:
        """Spawn the engine process; returns at once."""
        self._supervisor.start()

    async def stop(self) -> None:
        """End the engine; requests that still run raise EngineDied. Calling it again changes nothing."""
        await self._supervisor.stop()

    async def wait_prepared(self) -> str:
        """Wait for the model's files; return their directory. Raises EngineUnavailable on failure."""
        while self.model_directory is None:
            await self._change()
        return self.model_directory

    async def wait_ready(self) -> EngineInfo:
        """Wait until requests are taken; return what is served. Raises EngineUnavailable on failure."""
        while self.state != "ready" or self.info is None:
            await self._change()
        return self.info

    async def submit(self, request: Request) -> Ticket:
        """Hand in a request, whose id no running one has; returns once the engine has accepted it.

        Cancelling the call cancels the request. Raises InvalidRequest for one that can never run,
        Overloaded for one refused for now, EngineUnavailable at once where no engine is ready, and
        EngineDied where it ends before it answers.
        """
        if self.state != "ready":
            raise EngineUnavailable(self._why_unavailable())
        if request.id in self._unanswered or request.id in self._tickets:
            raise ValueError(f"a request {request.id!r} is running already")
        if len(self._unanswered) >= self._max_unanswered:
            raise Overloaded(
                f"{self._max_unanswered} requests are waiting for the engine to look at them",
                "unanswered_limit",
                # The engine answers all of them at its next iteration.
                retry_after_seconds=max(1.0, self._longest_iteration_seconds),
            )
        if not (self._unanswered or self._tickets):
            self._supervisor.work_begins()
        if not self._supervisor.send(Submit(self._supervisor.epoch, request)):
            raise EngineDied("the engine process has just ended")
        answer: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
        self._unanswered[request.id] = answer
        try:
            return await answer
        except asyncio.CancelledError:
            self._abandon(request.id)
            raise

    async def ask(self, question: SwapPolicies | DescribePolicies | DescribeRequest) -> Answer:
        """Ask what an operator may ask; the answer comes between two iterations.

        Raises EngineUnavailable where no engine is ready, EngineDied where it ends before it answers.
        """
        if self.state != "ready":
            raise EngineUnavailable(self._why_unavailable())
        self._num_queries += 1
        number = self._num_queries
        if not self._supervisor.send(Query(self._supervisor.epoch, number, question)):
            raise EngineDied("the engine process has just ended")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queries[number] = answer
        try:
            return await answer
        finally:
            self._queries.pop(number, None)

    def _abandon(self, request_id: str) -> None:
        """Cancel a request whose submitter no longer waits for the answer."""
        if self._unanswered.pop(request_id, None) is not None:
            self._cancel(request_id)
        elif (ticket := self._tickets.get(request_id)) is not None:
            ticket.cancel()

    def _cancel(self, request_id: str) -> None:
        self._supervisor.send(Cancel(self._supervisor.epoch, request_id))

    async def _change(self) -> None:
        if self.state in ("failed", "stopped"):
            raise EngineUnavailable(self._why_unavailable())
        await self._changed.wait()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _why_unavailable(self) -> str:
        match self.state:
            case "failed":
                return f"the engine has failed: {self.failure}"
            case "starting":
                return "the model is still being loaded"
            case "restarting":
                return "the engine ended unexpectedly and is being restarted"
            case _:
                return "the engine has been stopped"

    def _hear(self, message: FromEngine) -> None:
        if isinstance(message, IterationOutput):
            self._route(message)
        elif isinstance(message, Answer):
            answer = self._queries.get(message.number)
            if answer is not None and not answer.done():
                answer.set_result(message)
        for listener in self.listeners:
            try:
                listener(message)
            except Exception:
                _log.exception("a listener failed")

    def _route(self, message: IterationOutput) -> None:
        if message.stats is not None:
            self._longest_iteration_seconds = max(self._longest_iteration_seconds, message.stats.duration_seconds)
        for accepted in message.accepted:
            self._accept(accepted)
        for rejected in message.rejected:
            if (answer := self._unanswered.pop(rejected.request_id, None)) is not None and not answer.done():
                answer.set_exception(_refusal(rejected))
        for output in message.outputs:
            if (ticket := self._tickets.get(output.request_id)) is not None:
                ticket.deliver(output)
        for outcome in message.finished:
            if (ticket := self._tickets.pop(outcome.request_id, None)) is not None:
                ticket.finish(outcome)

    def _accept(self, accepted: Accepted) -> None:
        # Without an entry the submitter has gone, and the cancellation is on its way.
        answer = self._unanswered.pop(accepted.request_id, None)
        if answer is not None:
            ticket = self._tickets[accepted.request_id] = Ticket(accepted, self._cancel)
            if answer.done():
                ticket.cancel()
            else:
                answer.set_result(ticket)

    def _bury(self, reason: str) -> None:
        """Tell everyone who waits that the engine has ended."""
        unanswered, self._unanswered = self._unanswered, {}
        tickets, self._tickets = self._tickets, {}
        waiting: list[asyncio.Future[Ticket] | asyncio.Future[Answer]] = [*unanswered.values(), *self._queries.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(EngineDied(reason))
        for ticket in tickets.values():
            ticket.die(reason)


def _refusal(rejected: Rejected) -> InvalidRequest | Overloaded:
    if rejected.retry_after_seconds is None:
        return InvalidRequest(rejected.message, rejected.reason)
    return Overloaded(rejected.message, rejected.reason, rejected.retry_after_seconds, rejected.limits)
