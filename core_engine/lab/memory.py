"""Simulated KV memory: remembers what each block holds, and refuses a batch that a model would get wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

from core_engine.errors import IntegrityError
from core_engine.executor import Batch
from core_engine.request import Sequence, Status


@dataclass(slots=True)
class _Block:
    """Content of one block: tokens, and a hash of all tokens before it, on which its keys and values depend."""

    history: int
    token_ids: list[int] = field(default_factory=list)
    after: int | None = None  # the history of the block that follows; None until somebody asks

    def following(self) -> int:
        """A hash of all tokens up to the end of this block."""
        if self.after is None:
            self.after = hash((self.history, *self.token_ids))
        return self.after


class SimulatedMemory:
    """Content of `num_blocks` blocks of `block_size` slots, written and read as a model would.

    `execute` raises IntegrityError, naming row and sequence, for everything that would make a real
    model answer wrongly or overwrite another sequence's keys and values.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._num_blocks = num_blocks
        self._block_size = block_size
        self._blocks: list[_Block | None] = [None] * num_blocks

    def execute(self, batch: Batch) -> None:
        """Write the batch's tokens to their slots, then check that every row finds all it attends to."""
        self._check_shape(batch)
        for source, destination in batch.block_copies:
            copied = self._blocks[source]
            if copied is None:
                raise IntegrityError(f"iteration {batch.iteration}: copies block {source}, which holds nothing")
            self._blocks[destination] = _Block(copied.history, list(copied.token_ids))
        writers: dict[int, int] = {}
        start = 0
        for row, sequence in enumerate(batch.sequences):
            end = start + batch.num_query_tokens[row]
            try:
                self._check_row(batch, row, start, end)
                self._check_table(sequence, batch.num_kv_tokens[row] - (end - start), writers)
                self._write(sequence, batch.num_kv_tokens[row] - (end - start), batch.token_ids[start:end])
            except IntegrityError as error:
                raise IntegrityError(f"iteration {batch.iteration}, row {row}, {sequence!r}: {error}") from None
            start = end
        for row, sequence in enumerate(batch.sequences):
            self._read(sequence, batch.num_kv_tokens[row], writers)

    def _check_shape(self, batch: Batch) -> None:
        rows, tokens = len(batch.sequences), sum(batch.num_query_tokens)
        if not rows == len(batch.num_query_tokens) == len(batch.num_kv_tokens):
            raise IntegrityError(f"iteration {batch.iteration}: per-row lists differ in length")
        if not tokens == len(batch.token_ids) == len(batch.positions) == len(batch.slot_mapping):
            raise IntegrityError(f"iteration {batch.iteration}: flat lists don't hold {tokens} tokens")
        if batch.block_size != self._block_size:
            raise IntegrityError(f"iteration {batch.iteration}: block size {batch.block_size}, not {self._block_size}")
        if len({sequence.id for sequence in batch.sequences}) < rows:
            raise IntegrityError(f"iteration {batch.iteration}: a sequence has two rows")
        caught_up = [r for r, s in enumerate(batch.sequences) if batch.num_kv_tokens[r] == s.num_tokens]
        if batch.sample_rows != caught_up:
            raise IntegrityError(f"iteration {batch.iteration}: samples rows {batch.sample_rows}, not {caught_up}")
        if batch.idle_rows < 0:
            raise IntegrityError(f"iteration {batch.iteration}: {batch.idle_rows} idle rows")

    def _check_row(self, batch: Batch, row: int, start: int, end: int) -> None:
        sequence, num_kv_tokens = batch.sequences[row], batch.num_kv_tokens[row]
        first = num_kv_tokens - (end - start)
        if end == start:
            raise IntegrityError("no tokens to compute")
        if sequence.status is not Status.RUNNING:
            raise IntegrityError("not running")
        if first != sequence.num_computed_tokens or num_kv_tokens > sequence.num_tokens:
            raise IntegrityError(f"computes tokens {first} to {num_kv_tokens}")
        if batch.token_ids[start:end] != sequence.token_ids[first:num_kv_tokens]:
            raise IntegrityError("its token ids are not the sequence's own")
        if batch.positions[start:end] != list(range(first, num_kv_tokens)):
            raise IntegrityError("its positions are not those of its tokens")
        table, size = sequence.block_table, self._block_size
        if len(table) * size < num_kv_tokens:
            raise IntegrityError(f"{len(table)} blocks don't hold {num_kv_tokens} tokens")
        slots = [table[position // size] * size + position % size for position in range(first, num_kv_tokens)]
        if batch.slot_mapping[start:end] != slots:
            raise IntegrityError("its slots are not those of its block table")

    def _check_table(self, sequence: Sequence, first: int, writers: dict[int, int]) -> None:
        table = sequence.block_table
        if len(set(table)) < len(table) or not all(0 <= block < self._num_blocks for block in table):
            raise IntegrityError(f"its block table {table} has a block twice, or one that does not exist")
        for block in table[first // self._block_size :]:
            if block in writers:
                raise IntegrityError(f"writes to block {block}, as sequence {writers[block]} does")
            writers[block] = sequence.id

    def _write(self, sequence: Sequence, first: int, token_ids: list[int]) -> None:
        size, table, written = self._block_size, sequence.block_table, 0
        while written < len(token_ids):
            position = first + written
            index, offset = divmod(position, size)
            chunk = token_ids[written : written + size - offset]
            block = self._blocks[table[index]]
            if offset:
                if block is None or len(block.token_ids) < offset:
                    raise IntegrityError(
                        f"writes position {position} into block {table[index]}, which lacks what comes before"
                    )
                block.token_ids[offset:] = chunk
                block.after = None
            else:
                previous = self._blocks[table[index - 1]] if index else None
                self._blocks[table[index]] = _Block(previous.following() if previous else 0, chunk)
            written += len(chunk)

    def _read(self, sequence: Sequence, num_kv_tokens: int, writers: dict[int, int]) -> None:
        size, table, history = self._block_size, sequence.block_table, 0
        for start in range(0, num_kv_tokens, size):
            wanted = sequence.token_ids[start : min(start + size, num_kv_tokens)]
            number = table[start // size]
            block = self._blocks[number]
            if writers.get(number, sequence.id) != sequence.id:
                raise IntegrityError(f"{sequence!r} reads block {number} while sequence {writers[number]} writes to it")
            if block is None or block.history != history or block.token_ids[: len(wanted)] != wanted:
                raise IntegrityError(
                    f"{sequence!r} attends to positions {start} to {start + len(wanted)} in block "
                    f"{number}, which holds {block!r:.120}"
                )
            history = block.following()
