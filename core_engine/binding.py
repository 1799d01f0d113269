"""Binding: blocks for the planned tokens, and the plan flattened into one Batch."""

from __future__ import annotations

from core_engine.deciding import Deciding
from core_engine.executor import Batch
from core_engine.plan import IterationPlan
from core_engine.preempting import Preempting
from core_engine.prompt_logprobs import prompt_positions
from core_engine.request import Sequence
from core_engine.state import EngineState


class Binding:
    """Turns a legal plan into a Batch; a sequence whose blocks are refused sits this iteration out.

    Rows with one token come first, each kind in the order of the plan: most are decodes whose block has room, and
    for those a whole column at a time costs the least.
    """

    def __init__(self, state: EngineState, deciding: Deciding, preempting: Preempting) -> None:
        self._state = state
        self._deciding = deciding
        self._preempting = preempting

    def bind(self, plan: IterationPlan) -> tuple[Batch, list[Sequence]]:
        """The Batch, and the sequences that started with it."""
        state = self._state
        state.refused = set()
        starting = self._share(plan)
        batch = Batch(state.iteration, state.block_size, idle_rows=plan.idle_rows)
        size, running = state.block_size, state.running_ids
        single: list[Sequence] = []
        longer: list[tuple[Sequence, int]] = []
        started: list[Sequence] = []
        for sequence_id, num_tokens in plan.num_tokens.items():
            sequence = running.get(sequence_id)
            if sequence is None:
                sequence = starting.get(sequence_id)
                if sequence is None or not self._start(sequence, num_tokens, batch):
                    continue
                started.append(sequence)
            elif sequence.num_computed_tokens + num_tokens > len(sequence.block_table) * size:
                if not self._grow(sequence, sequence.num_computed_tokens + num_tokens):
                    continue
            if num_tokens == 1 and not sequence.scores_prompt:
                single.append(sequence)
            else:
                longer.append((sequence, num_tokens))
        _append_single_rows(batch, single)
        for sequence, num_tokens in longer:
            _append_row(batch, sequence, num_tokens)
        return batch, started

    def _share(self, plan: IterationPlan) -> dict[int, Sequence]:
        """Those that start, by id, with the blocks that they find.

        Before any block is granted, lest one that is found here be granted to another.
        """
        starting = {}
        for sequence_id in plan.num_tokens.keys() - self._state.running_ids.keys():
            sequence = self._state.waiting_queues.get(sequence_id)
            if sequence is not None:
                starting[sequence_id] = sequence
        for sequence_id in plan.num_tokens if starting else ():
            if (sequence := starting.get(sequence_id)) is not None:
                self._state.pool.share(sequence, self._deciding.sharing.match(sequence).blocks)
        return starting

    def _start(self, sequence: Sequence, num_tokens: int, batch: Batch) -> bool:
        """Take its first blocks; whether there were any."""
        match = self._deciding.sharing.match(sequence)
        if not self._grow(sequence, match.num_tokens + num_tokens, self._deciding.reserve(sequence)):
            self._state.pool.release(sequence)
            return False
        self._state.start(sequence, match.num_tokens)
        if match.copy is not None:
            batch.block_copies.append((match.copy, sequence.block_table[len(match.blocks)]))
        return True

    def _grow(self, sequence: Sequence, num_tokens: int, at_least_blocks: int = 0) -> bool:
        """See that its blocks hold so many tokens; False, and told, where they are refused."""
        pool = self._state.pool
        missing = max(pool.blocks_for(num_tokens), at_least_blocks) - len(sequence.block_table)
        if missing <= 0 or pool.grow(sequence, missing):
            return True
        self._preempting.tell_shortage("refused", sequence.id, missing)
        self._state.refused.add(sequence.id)
        return False


def _append_single_rows(batch: Batch, sequences: list[Sequence]) -> None:
    """Flatten the next token of each sequence onto the empty batch."""
    size, iteration = batch.block_size, batch.iteration
    positions = [sequence.num_computed_tokens for sequence in sequences]
    batch.sequences = sequences
    batch.positions = positions
    batch.num_query_tokens = [1] * len(sequences)
    batch.num_kv_tokens = ends = [position + 1 for position in positions]
    batch.token_ids = [s.token_ids[position] for s, position in zip(sequences, positions, strict=True)]
    batch.slot_mapping = [
        s.block_table[position // size] * size + position % size
        for s, position in zip(sequences, positions, strict=True)
    ]
    batch.sample_rows = [row for row, (s, end) in enumerate(zip(sequences, ends, strict=True)) if end == s.num_tokens]
    for sequence in sequences:
        sequence.in_flight = True
        sequence.last_planned_iteration = iteration


def _append_row(batch: Batch, sequence: Sequence, num_tokens: int) -> None:
    """Flatten the next `num_tokens` tokens of the sequence onto the batch."""
    size, table = batch.block_size, sequence.block_table
    start = sequence.num_computed_tokens
    end = start + num_tokens
    if end == sequence.num_tokens:
        batch.sample_rows.append(len(batch.sequences))
    if sequence.scores_prompt and start < sequence.num_prompt_tokens:
        # What a preemption threw away has been told already.
        positions = prompt_positions(sequence.num_prompt_tokens, max(start, sequence.max_computed_tokens), end)
        if positions:
            batch.scored[len(batch.sequences)] = positions
    batch.sequences.append(sequence)
    batch.num_query_tokens.append(num_tokens)
    batch.num_kv_tokens.append(end)
    batch.token_ids.extend(sequence.token_ids[start:end])
    batch.positions.extend(range(start, end))
    for block_index in range(start // size, -(-end // size)):
        low = max(start - block_index * size, 0)
        high = min(end - block_index * size, size)
        first_slot = table[block_index] * size
        batch.slot_mapping.extend(range(first_slot + low, first_slot + high))
    sequence.in_flight = True
    sequence.last_planned_iteration = batch.iteration
