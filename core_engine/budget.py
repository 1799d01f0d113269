"""Budget: what is left in this iteration, and `take`, the only arithmetic on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from core_engine.cost import CostModel, Load
from core_engine.plan import IterationPlan, PrefillLimit
from core_engine.request import Status
from core_engine.sharing import NO_MATCH, Match
from core_engine.view import SequenceView

_UNBOUNDED = 1 << 60
_NEXT = "engine: an overdue request is next"


class Budget:
    """Tokens, seats, blocks and predicted seconds left in one iteration.

    A planner asks `take` for as many tokens of a sequence as it likes and gets what the engine's
    limits and the gates leave. What was taken makes a legal plan: `plan()`.
    """

    def __init__(
        self,
        *,
        token_limit: int,
        sequences_left: int,
        blocks_left: int,
        block_size: int,
        reserve: Callable[[SequenceView], int],
        match: Callable[[SequenceView], Match] = lambda sequence: NO_MATCH,
        is_free: Callable[[int], bool] = lambda block: False,
        limit: PrefillLimit = PrefillLimit(),
        exempt: Collection[int] = (),
        floor_id: int | None = None,
        lone_prompt_tokens: int = 0,
        cost: CostModel | None = None,
        decodes: Load | None = None,
    ) -> None:
        """`match`: what a starting sequence finds computed; `is_free`: whether nobody holds a block.

        `exempt`: ids that gates don't hold, though what they take counts; `floor_id`: the anchor, whose chunk no
        gate shrinks below a block.

        `lone_prompt_tokens`: how long a prompt may be that runs alone above the token limit; 0 where the
        planner doesn't ask for it. `decodes`: load of all running decodes, against which the gates' seconds
        are measured.
        """
        self.token_limit = token_limit
        self.tokens_left = token_limit
        self.sequences_left = sequences_left
        self.blocks_left = blocks_left
        self.starts_left = _UNBOUNDED if limit.new_sequences is None else limit.new_sequences
        self._taken: dict[int, int] = {}
        self.held: dict[int, str] = {}  # sequence id -> policy and reason
        self.clamped: dict[int, int] = {}  # sequence id -> blocks it lacked
        self._block_size = block_size
        self._reserve = reserve
        self._match = match
        self._is_free = is_free
        self._lacking: set[int] = set()  # of the held, those that lack blocks
        self._pinned: set[int] = set()
        self._limit = limit
        self._exempt = exempt
        self._floor_id = floor_id
        self._closed = False
        self._lone_prompt = lone_prompt_tokens
        self._keep_blocks = limit.keep_free_blocks or 0
        self._prompt_tokens_left = _UNBOUNDED if limit.prompt_tokens is None else limit.prompt_tokens
        self._seconds_left = limit.seconds
        self._seconds_are_spent = False  # not even the cheapest token fits
        self._cost = cost
        self._decodes = decodes or Load()
        self._load = self._decodes
        self._blocks_of: dict[int, int] = {}

    def take(self, sequence: SequenceView, num_tokens: int, whole: bool = False) -> int:
        """Take up to `num_tokens` more tokens of the sequence; returns how many were granted.

        Clamped to what the sequence has pending and to what limits, gates and blocks leave; with
        `whole`, and for a sequence that starts with a reservation, all or nothing. Calls for the
        same sequence add up.
        """
        sequence_id = sequence.id
        taken = self._taken.get(sequence_id, 0)
        start = sequence.num_computed_tokens + taken
        if sequence.num_tokens - start == 1 and not taken and num_tokens > 0 and self.tokens_left > 0:
            # The common case, a running decode whose block has room, costs one comparison more.
            if start < len(sequence.block_table) * self._block_size and sequence.status is Status.RUNNING:
                self._taken[sequence_id] = 1
                self.tokens_left -= 1
                return 1
        num_tokens, whole = _wish(sequence, num_tokens, whole)
        starts = sequence.status is Status.WAITING and not taken
        if sequence.status is Status.FINISHED or (starts and not self._may_start(sequence)):
            return 0
        if sequence.status is Status.WAITING:
            start += self._match(sequence).num_tokens
        wanted = min(num_tokens, sequence.num_tokens - start)
        if wanted <= 0:
            return 0
        granted = self._clamp_tokens(wanted, alone=whole and not self._taken)
        prefill = starts or sequence.num_pending_tokens > 1
        gated = prefill and sequence_id not in self._exempt
        if gated:
            granted = self._clamp_by_gates(sequence_id, start, granted)
        if granted < wanted and (whole or granted <= 0):
            return 0
        pins = self._pins(sequence) if starts else set()
        granted, blocks = self._clamp_by_blocks(sequence, start, granted, starts, gated, len(pins))
        if granted <= 0 or (whole and granted < wanted):
            return 0
        self._pinned |= pins
        self.blocks_left -= len(pins)
        self._book(sequence, taken + granted, granted, blocks, starts)
        if prefill:
            self._prompt_tokens_left -= granted
            if self._seconds_left is not None:
                self._load = self._load.plus(start, granted)
        return granted

    def take_decodes(self, sequences: Iterable[SequenceView]) -> list[SequenceView]:
        """Take the next token of every running decode, in this order, at a fraction of `take`'s cost each.

        Returns the others, those that have more than one token to catch up with.
        """
        size, taken, running = self._block_size, self._taken, Status.RUNNING
        left = self.tokens_left
        others = []
        for sequence in sequences:
            start = sequence.num_computed_tokens
            if sequence.num_tokens - start != 1:
                others.append(sequence)
            elif left > 0 and start < len(sequence.block_table) * size and sequence.status is running:
                sequence_id = sequence.id
                if sequence_id not in taken:
                    taken[sequence_id] = 1
                    left -= 1
            else:
                self.tokens_left = left
                self.take(sequence, 1)
                left = self.tokens_left
        self.tokens_left = left
        return others

    def require(self, sequence: SequenceView) -> bool:
        """Take what must run, once, whatever gates say: one decode token, or one block of prompt.

        Whether anything of the sequence is in the plan then.
        """
        if not self.granted(sequence.id):
            exempt = self._exempt
            self._exempt = {sequence.id}
            self.take(sequence, self._block_size)
            self._exempt = exempt
        return self.granted(sequence.id) > 0

    def close(self) -> None:
        """From now on only exempt sequences may start: somebody overdue found no room and is next."""
        self._closed = True

    def plan(self, *, deliver: bool = True, idle_rows: int = 0) -> IterationPlan:
        """A legal plan of everything taken so far; `idle_rows` are cut to the tokens left."""
        return IterationPlan(dict(self._taken), deliver, min(idle_rows, max(0, self.tokens_left)))

    def granted(self, sequence_id: int) -> int:
        """Tokens of that sequence taken so far."""
        return self._taken.get(sequence_id, 0)

    def may_be_passed(self, sequence_id: int) -> bool:
        """Whether a gate holds just this sequence, so that those behind it may go first.

        Not so where it lacks blocks, those included that gates keep free: who needs less would take them for ever.
        """
        return sequence_id in self.held and sequence_id not in self._lacking

    def holds_all(self, waiting: Iterable[SequenceView]) -> bool:
        """Whether gates let none of these start, whoever they are; then the reasons are noted, so nobody need ask."""
        reason = self._reason_for_all()
        if reason is None:
            return False
        ids = [sequence.id for sequence in waiting]
        self.held.update(dict.fromkeys(ids, reason))
        if self._limit.held and not self._closed:
            self.held.update((i, self._limit.held[i]) for i in ids if i in self._limit.held)
        return True

    def _reason_for_all(self) -> str | None:
        """Why gates let nobody start any more; None where somebody may, or an exemption hasn't been used."""
        if any(sequence_id not in self._taken for sequence_id in self._exempt):
            return None
        if self._floor_id is not None and self._floor_id not in self._taken:
            return None
        if self._closed:
            return _NEXT
        reasons = self._limit.reasons
        if self.starts_left <= 0:
            return reasons.get("new_sequences", "")
        if self._prompt_tokens_left <= 0:
            return reasons.get("prompt_tokens", "")
        return reasons.get("seconds", "") if self._seconds_are_spent else None

    def _may_start(self, sequence: SequenceView) -> bool:
        sequence_id = sequence.id
        if self.sequences_left <= 0:
            return False
        if sequence_id not in self._exempt:
            if self._closed:
                self.held[sequence_id] = _NEXT
                return False
            if (reason := self._limit.held.get(sequence_id)) is not None:
                self.held[sequence_id] = reason
                return False
            if self.starts_left <= 0:
                self.held[sequence_id] = self._limit.reasons.get("new_sequences", "")
                return False
        if waits := self._match(sequence).waits:
            self.held[sequence_id] = waits
            return False
        return True

    def _clamp_tokens(self, wanted: int, alone: bool) -> int:
        if alone and self.token_limit < wanted <= self._lone_prompt:
            return wanted
        return min(wanted, self.tokens_left)

    def _clamp_by_gates(self, sequence_id: int, start: int, wanted: int) -> int:
        granted = min(wanted, self._prompt_tokens_left)
        field = "prompt_tokens"
        if self._seconds_left is not None and self._cost is not None:
            affordable = self._affordable(start, granted, self._seconds_left)
            if affordable < granted:
                granted, field = affordable, "seconds"
        granted = max(granted, min(wanted, self._floor(sequence_id)))
        if granted < wanted:
            self.held[sequence_id] = self._limit.reasons.get(field, "")
        return granted

    def _affordable(self, start: int, wanted: int, seconds: float) -> int:
        """The longest chunk whose marginal predicted time, with the prompts taken so far, fits."""
        assert self._cost is not None
        if self._seconds_are_spent:
            return 0
        low, high = 0, wanted
        while low < high:
            middle = (low + high + 1) // 2
            if self._cost.prefill_seconds(self._load.plus(start, middle), self._decodes) <= seconds:
                low = middle
            else:
                high = middle - 1
        if low == 0:
            first = self._load.plus(0, 1)
            self._seconds_are_spent = self._cost.prefill_seconds(first, self._decodes) > seconds
        return low

    def _pins(self, sequence: SequenceView) -> set[int]:
        """Free blocks that the sequence would hold for their content."""
        return {b for b in self._match(sequence).blocks if b not in self._pinned and self._is_free(b)}

    def _clamp_by_blocks(
        self, sequence: SequenceView, start: int, wanted: int, starts: bool, gated: bool, pins: int
    ) -> tuple[int, int]:
        """How many tokens the blocks allow, and how many new blocks they take beside `pins` found ones."""
        size = self._block_size
        owned = len(sequence.block_table) + self._blocks_of.get(sequence.id, 0)
        if starts:
            owned = len(self._match(sequence).blocks)
        needed = max(0, -(-(start + wanted) // size) - owned)
        reserved = self._reserve(sequence) if starts else 0
        needed = max(needed, reserved - owned)
        keep = pins + (self._keep_blocks if gated else 0)
        if needed <= self.blocks_left - keep:
            return wanted, needed
        if needed > self.blocks_left - pins:
            self.clamped[sequence.id] = needed + pins - self.blocks_left
        else:
            self.held[sequence.id] = self._limit.reasons.get("keep_free_blocks", "")
            self._lacking.add(sequence.id)
        if reserved:
            return 0, 0
        granted = min(wanted, (owned + max(0, self.blocks_left - keep)) * size - start)
        floor = min(wanted, self._floor(sequence.id), (owned + max(0, self.blocks_left - pins)) * size - start)
        granted = max(granted, floor)
        return granted, max(0, -(-(start + granted) // size) - owned)

    def _floor(self, sequence_id: int) -> int:
        """Tokens that no gate takes from the sequence: one block for the anchor, over all calls together."""
        return self._block_size - self.granted(sequence_id) if sequence_id == self._floor_id else 0

    def _book(self, sequence: SequenceView, total: int, granted: int, blocks: int, starts: bool) -> None:
        self._taken[sequence.id] = total
        self.tokens_left -= granted
        self.blocks_left -= blocks
        found = len(self._match(sequence).blocks) if starts else 0
        if blocks or found:
            self._blocks_of[sequence.id] = self._blocks_of.get(sequence.id, 0) + blocks + found
        if starts:
            self.sequences_left -= 1
            self.starts_left -= 1


def _wish(sequence: SequenceView, num_tokens: int, whole: bool) -> tuple[int, bool]:
    """How many tokens are really asked for, and whether all or nothing.

    A text to embed goes as a whole: its tokens may look at those behind them, so no part can be
    computed before the rest.
    """
    if type(num_tokens) is not int:
        raise TypeError(f"take {num_tokens!r:.40} tokens of sequence {sequence.id}: not an int")
    if sequence.kind == "embed" and num_tokens > 0:
        return sequence.num_tokens, True
    return num_tokens, whole
