"""Binding: blocks for the planned tokens, and the plan flattened into one Batch."""

from __future__ import annotations

from core_engine.deciding import Deciding
from core_engine.executor import Batch
from core_engine.plan import IterationPlan
from core_engine.preempting import Preempting
from core_engine.prompt_logprobs import prompt_positions
from core_engine.request import Sequence, Status
from core_engine.sharing import NO_MATCH
from core_engine.state import EngineState


class Binding:
    """Turns a legal plan into a Batch; a sequence whose blocks are refused sits this iteration out."""

    def __init__(self, state: EngineState, deciding: Deciding, preempting: Preempting) -> None:
        self._state = state
        self._deciding = deciding
        self._preempting = preempting

    def bind(self, plan: IterationPlan) -> tuple[Batch, list[Sequence]]:
        """The Batch, and the sequences that started with it."""
        state = self._state
        batch = Batch(state.iteration, state.block_size, idle_rows=plan.idle_rows)
        started: list[Sequence] = []
        state.refused = set()
        planned = [(sequence, n) for i, n in plan.num_tokens.items() if (sequence := state.get(i)) is not None]
        starting = {sequence.id for sequence, _ in planned if sequence.status is Status.WAITING}
        for sequence, _ in planned:
            if sequence.id in starting:
                # Before any block is granted, lest one that is found here be granted to another.
                state.pool.share(sequence, self._deciding.sharing.match(sequence).blocks)
        for sequence, num_tokens in planned:
            starts = sequence.id in starting
            match = self._deciding.sharing.match(sequence) if starts else NO_MATCH
            missing = state.pool.blocks_for(sequence.num_computed_tokens + match.num_tokens + num_tokens) - len(
                sequence.block_table
            )
            if starts:
                missing = max(missing, self._deciding.reserve(sequence) - len(sequence.block_table))
            if missing > 0 and not state.pool.grow(sequence, missing):
                self._preempting.tell_shortage("refused", sequence.id, missing)
                state.refused.add(sequence.id)
                if starts:
                    state.pool.release(sequence)
                continue
            if starts:
                state.start(sequence, match.num_tokens)
                started.append(sequence)
                if match.copy is not None:
                    batch.block_copies.append((match.copy, sequence.block_table[len(match.blocks)]))
            _append_row(batch, sequence, num_tokens)
        return batch, started


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
    if num_tokens == 1:
        batch.token_ids.append(sequence.token_ids[start])
        batch.positions.append(start)
        batch.slot_mapping.append(table[start // size] * size + start % size)
    else:
        batch.token_ids.extend(sequence.token_ids[start:end])
        batch.positions.extend(range(start, end))
        for block_index in range(start // size, -(-end // size)):
            low = max(start - block_index * size, 0)
            high = min(end - block_index * size, size)
            first_slot = table[block_index] * size
            batch.slot_mapping.extend(range(first_slot + low, first_slot + high))
    sequence.in_flight = True
    sequence.last_planned_iteration = batch.iteration
