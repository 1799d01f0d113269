"""TextWorkers: threads for what would hold up the event loop, a bounded number of them before a bounded queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from core_engine import Overloaded

T = TypeVar("T")


class TextWorkers:
    """Runs tokenising, chat templates and large bodies; the tokenizer lets other threads run meanwhile."""

    def __init__(self, num_threads: int, max_waiting: int) -> None:
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="text")
        self._max_waiting = max_waiting
        self._waiting = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread; raises Overloaded where too many wait already.

        Where the caller is cancelled, work that hasn't begun never does.
        """
        if self._waiting >= self._max_waiting:
            message = f"{self._waiting} requests wait for their text to be read, which is the limit."
            raise Overloaded(message, "text_queue_full", retry_after_seconds=1.0)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Take no more work and let the threads end."""
        self._pool.shutdown(wait=False, cancel_futures=True)
