"""The waiting sequences: queues by (class, tenant) in arrival order, and who has waited longest."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from sortedcontainers import SortedDict

from core_engine.request import Sequence, Status


class WaitingQueue:
    """Sequences of one (class, tenant) in arrival order, which preempted ones join at their old place."""

    def __init__(self, window: int) -> None:
        self._sequences: SortedDict[int, Sequence] = SortedDict()
        self._limit = window
        self._window: list[Sequence] | None = None
        self.num_tokens = 0

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences.values())

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence at its place by arrival."""
        self._sequences[sequence.id] = sequence
        self.num_tokens += sequence.num_tokens
        self._window = None

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        del self._sequences[sequence.id]
        self.num_tokens -= sequence.num_tokens
        self._window = None

    def place(self, sequence: Sequence) -> int:
        """Its place in the queue, from 1."""
        return int(self._sequences.bisect_left(sequence.id)) + 1

    def window(self) -> list[Sequence]:
        """The first `window` sequences; the same list until the queue changes."""
        if self._window is None:
            ids = self._sequences.islice(0, self._limit)
            self._window = [self._sequences[sequence_id] for sequence_id in ids]
        return self._window


class WaitingQueues:
    """All waiting sequences, their counts in O(1), and the one that has waited longest.

    Waiting time counts in iterations from arrival or, after the first token, from the last preemption.
    """

    def __init__(self, window: int) -> None:
        self._window_limit = window
        self.queues: dict[tuple[str, str], WaitingQueue] = {}
        self.num_tokens = 0
        self._count = 0
        self._entries: dict[int, tuple[int, Sequence]] = {}  # id -> (iteration since which it waits, sequence)
        self._longest: list[tuple[int, int]] = []  # heap of (since, id), stale ones included
        self._merged: list[Sequence] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sequence]:
        for queue in self.queues.values():
            yield from queue

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence.id in self._entries

    def add(self, sequence: Sequence, since: int) -> None:
        """Queue a sequence that has waited since that iteration."""
        sequence.status = Status.WAITING
        key = (sequence.class_name, sequence.tenant)
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = WaitingQueue(self._window_limit)
        queue.add(sequence)
        self.num_tokens += sequence.num_tokens
        self._count += 1
        self._entries[sequence.id] = (since, sequence)
        heapq.heappush(self._longest, (since, sequence.id))
        self._merged = None

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, because it starts or is cancelled."""
        key = (sequence.class_name, sequence.tenant)
        queue = self.queues[key]
        queue.remove(sequence)
        if not queue:
            del self.queues[key]
        self.num_tokens -= sequence.num_tokens
        self._count -= 1
        del self._entries[sequence.id]
        self._merged = None
        if len(self._longest) > 64 and len(self._longest) > 2 * self._count:
            self._longest = [(since, sequence_id) for sequence_id, (since, _) in self._entries.items()]
            heapq.heapify(self._longest)

    def window(self) -> list[Sequence]:
        """The windows of all queues, merged by arrival; the same list until something changes."""
        if self._merged is None:
            if len(self.queues) == 1:
                self._merged = next(iter(self.queues.values())).window()
            else:
                windows = [s for queue in self.queues.values() for s in queue.window()]
                self._merged = sorted(windows, key=lambda sequence: sequence.id)
        return self._merged

    def get(self, sequence_id: int) -> Sequence | None:
        """The waiting sequence of that id."""
        entry = self._entries.get(sequence_id)
        return entry[1] if entry else None

    def longest_waits(self, iteration: int) -> dict[str, int]:
        """By class, for how many iterations the first of its queues have waited."""
        longest: dict[str, int] = {}
        for (class_name, _), queue in self.queues.items():
            since, _ = self._entries[next(iter(queue)).id]
            longest[class_name] = max(longest.get(class_name, 0), iteration - since)
        return longest

    def overdue(self, iteration: int, max_wait_iterations: int, at_most: int) -> list[Sequence]:
        """Up to `at_most` of those that have waited that long, longest first."""
        found: list[Sequence] = []
        popped: list[tuple[int, int]] = []
        heap = self._longest
        while heap and len(found) < at_most:
            since, sequence_id = heap[0]
            entry = self._entries.get(sequence_id)
            if entry is not None and entry[0] == since:
                if iteration - since < max_wait_iterations:
                    break
                if not popped or popped[-1] != heap[0]:
                    found.append(entry[1])
                    popped.append(heap[0])
            heapq.heappop(heap)
        for item in popped:
            heapq.heappush(heap, item)
        return found
