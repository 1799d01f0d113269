"""HandDriver: batches planned by hand, for what runs before there is an engine: probe, warm-up, tests."""

from __future__ import annotations

from core_engine.executor import Batch, BatchResult, ModelSpec
from core_engine.request import Request, SamplingParams, Sequence


class HandDriver:
    """Keeps sequences and their blocks, and binds batches of chosen sequences and numbers of tokens.

    Blocks are handed out in a scattered order, so that nothing comes to rely on neighbouring ones.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._free_blocks = [*range(1, spec.num_blocks, 2), *range(0, spec.num_blocks, 2)]
        self._num_sequences = 0
        self._iteration = 0

    def sequence(
        self,
        prompt: list[int],
        sampling: SamplingParams = SamplingParams(temperature=0.0),
        *,
        seed: int = 0,
        sample_index: int = 0,
    ) -> Sequence:
        """A new sequence with nothing computed."""
        self._num_sequences += 1
        request = Request(id=str(self._num_sequences), model="", prompt_token_ids=prompt, sampling=sampling)
        return Sequence(
            self._num_sequences,
            request,
            sample_index,
            max_tokens=1 << 30,
            seed=seed,
            arrival_seconds=0.0,
            arrival_iteration=0,
        )

    def bind(self, plan: list[tuple[Sequence, int]], *, sample_all: bool = False, idle_rows: int = 0) -> Batch:
        """A batch of the next so many tokens of each sequence, with blocks for them.

        Sampled are the rows that catch up with their known tokens, or all of them.
        """
        self._iteration += 1
        block_size = self._spec.block_size
        batch = Batch(iteration=self._iteration, block_size=block_size, idle_rows=idle_rows)
        for row, (sequence, num_tokens) in enumerate(plan):
            start, end = sequence.num_computed_tokens, sequence.num_computed_tokens + num_tokens
            assert 1 <= num_tokens <= sequence.num_pending_tokens
            while len(sequence.block_table) * block_size < end:
                sequence.block_table.append(self._free_blocks.pop())
            batch.sequences.append(sequence)
            batch.num_query_tokens.append(num_tokens)
            batch.num_kv_tokens.append(end)
            batch.token_ids += sequence.token_ids[start:end]
            batch.positions += range(start, end)
            batch.slot_mapping += [
                sequence.block_table[position // block_size] * block_size + position % block_size
                for position in range(start, end)
            ]
            if sample_all or end == sequence.num_tokens:
                batch.sample_rows.append(row)
        return batch

    def advance(self, batch: Batch, result: BatchResult | None = None) -> None:
        """Take the batch as computed, and its tokens as said."""
        for sequence, num_tokens in zip(batch.sequences, batch.num_query_tokens, strict=True):
            sequence.num_computed_tokens += num_tokens
        for row, token in zip(batch.sample_rows, result.token_ids if result else [], strict=False):
            batch.sequences[row].append_token(token)

    def release(self, sequence: Sequence) -> None:
        """Give its blocks back and forget what was computed, as a preemption does."""
        self._free_blocks += sequence.block_table
        sequence.block_table = []
        sequence.num_computed_tokens = 0
