"""BackgroundResponses: responses that are worked on while nobody waits for them."""

from __future__ import annotations

import asyncio

from gateway.errors import report
from gateway.responses_api.operation import ResponseOperation
from gateway.responses_api.writer import ResponseWriter
from gateway.serving import Exchange


class BackgroundResponses:
    """Runs them. What admission lets into the engine bounds how many there are; a drain waits for them."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[None]] = {}

    async def start(self, operation: ResponseOperation, exchange: Exchange) -> bytes:
        """Have the engine accept it, keep it as it is, and go on behind the scenes; the response in its first state.

        Raises what the engine says if it doesn't accept it. The exchange is ended here, whatever happens.
        """
        try:
            _, writer = await exchange.begin()
            assert isinstance(writer, ResponseWriter)
            await operation.keep(writer.response)
        except BaseException as error:
            exchange.end(error)
            raise
        body = writer.encoded()
        task = asyncio.create_task(self._finish(operation, exchange, writer))
        self._running[operation.id] = task
        task.add_done_callback(lambda _: self._running.pop(operation.id))
        return body

    async def cancel(self, response_id: str) -> None:
        """Give up on a response, and return once that is kept; one that isn't running stays as it is."""
        task = self._running.get(response_id)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def wait(self) -> None:
        """Return once nothing runs any more; the engine must have stopped, or be about to finish."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _finish(self, operation: ResponseOperation, exchange: Exchange, writer: ResponseWriter) -> None:
        try:
            await exchange.rest()
        except asyncio.CancelledError as error:
            writer.cancel()
            await operation.keep(writer.response)
            exchange.end(error)
        except Exception as error:
            writer.fail(report(error))
            await operation.keep(writer.response)
            exchange.end(error)
        else:
            exchange.end(None)
