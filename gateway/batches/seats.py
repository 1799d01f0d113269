"""Seats: how many lines of batches are in the engine at a time, and whose turn it is."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable


class Seats:
    """Lets lines board while there is room; owners take turns, and each is served in the order in which it asked.

    `room` tells how many more could board now. The first may in any case: so every batch comes to its end, and with
    the end of that line it is asked again.
    """

    def __init__(self, room: Callable[[], int]) -> None:
        self.num_taken = 0
        self._room = room
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def take(self, owner: str) -> None:
        """Wait for a seat, which must be given back."""
        seat: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(seat)
        self._board()
        try:
            await seat
        except asyncio.CancelledError:
            if not seat.cancelled():  # it was granted in the same moment
                self.give_back()
            raise

    def give_back(self) -> None:
        """Let the next one board."""
        self.num_taken -= 1
        self._board()

    def _board(self) -> None:
        while self._waiting and (not self.num_taken or self._room() > 0):
            owner, queue = self._waiting.popitem(last=False)
            seat = queue.popleft()
            if queue:
                self._waiting[owner] = queue  # behind all others
            if not seat.cancelled():
                self.num_taken += 1
                seat.set_result(None)
