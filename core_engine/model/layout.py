"""BatchLayout: where every token of a flattened batch comes from and goes to, as tensors.

    flat index   0 1 2 3 4 5 | 6 | 7 | 8 9 | idle idle
    row          0           | 1 | 2 | 3   |
                 a prompt's chunk, two decodes, another chunk

Rows attend only to their own keys, which lie in the blocks of their table; idle tokens to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core_engine.executor import Batch

_ROWS_MULTIPLE = 8


@dataclass(frozen=True, slots=True)
class Reach:
    """How far back a query sees: everything, the last `window` keys, or its own `chunk` of positions."""

    window: int | None = None
    chunk: int | None = None

    def first_key(self, position: int) -> int:
        """Position of the earliest key that a query at `position` sees."""
        if self.chunk is not None:
            return position // self.chunk * self.chunk
        if self.window is not None:
            return max(0, position - self.window + 1)
        return 0

    def first_keys(self, positions: torch.Tensor) -> torch.Tensor:
        """The same for a tensor of positions."""
        if self.chunk is not None:
            return positions.div(self.chunk, rounding_mode="floor") * self.chunk
        if self.window is not None:
            return (positions - (self.window - 1)).clamp_min(0)
        return torch.zeros_like(positions)


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence's part of the batch: `num_queries` tokens from flat index `start` on.

    After the pass the sequence has `num_keys` keys; the last `num_queries` of them are its own.
    """

    start: int
    num_queries: int
    num_keys: int
    block_table: list[int]

    @property
    def first_position(self) -> int:
        """Position in the sequence of the row's first token."""
        return self.num_keys - self.num_queries


class BatchLayout:
    """A batch's numbers on the device, moved there in one transfer that nobody waits for."""

    def __init__(self, batch: Batch, device: torch.device) -> None:
        self.device = device
        self.block_size = batch.block_size
        self.num_tokens = batch.total_tokens
        self.num_idle = batch.idle_rows + padding_rows(batch.total_tokens + batch.idle_rows, device)
        self.rows = _rows(batch)
        self.max_keys = max(batch.num_kv_tokens, default=0)
        last_tokens = [self.rows[i].start + self.rows[i].num_queries - 1 for i in batch.sample_rows]
        idle = [0] * self.num_idle
        token_ids, positions, self.slots, self.sample_index, self.stale_blocks, sources, destinations = upload_lists(
            [
                batch.token_ids + idle,
                batch.positions + idle,
                batch.slot_mapping,
                last_tokens,
                _blocks_with_stale_slots(self.rows, batch.block_size),
                [source for source, _ in batch.block_copies],
                [destination for _, destination in batch.block_copies],
            ],
            device,
        )
        self.token_ids = token_ids.unsqueeze(0)
        self.position_ids = positions.unsqueeze(0)
        self.copies = (sources, destinations) if batch.block_copies else None

    def effective(self, reach: Reach) -> Reach:
        """`reach`, or the unbounded one where no sequence of this batch is long enough to meet the bound."""
        bound = reach.window or reach.chunk
        return Reach() if bound is None or self.max_keys <= bound else reach


def padding_rows(num_rows: int, device: torch.device) -> int:
    """Rows that make the number of rows one of a few.

    On the CPU oneDNN prepares its products anew for each number of rows and keeps what it prepared: with every
    number from 1 to the token limit that comes to more memory than the model.
    """
    return -num_rows % _ROWS_MULTIPLE if device.type == "cpu" and num_rows > _ROWS_MULTIPLE else 0


def upload_lists(lists: list[list[int]], device: torch.device) -> list[torch.Tensor]:
    """Each list as an int64 tensor on the device, in one transfer without waiting."""
    flat = torch.tensor([number for numbers in lists for number in numbers], dtype=torch.int64)
    return list(upload(flat, device).split([len(numbers) for numbers in lists]))


def upload(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The host tensor on the device. A copy from pageable memory would wait for the device; this doesn't."""
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def download(tensor: torch.Tensor) -> torch.Tensor:
    """A host tensor that holds the same once the device has got so far; nothing waits for it here."""
    if tensor.device.type == "cpu":
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)


def _rows(batch: Batch) -> list[Row]:
    rows = []
    start = 0
    for sequence, num_queries, num_keys in zip(
        batch.sequences, batch.num_query_tokens, batch.num_kv_tokens, strict=True
    ):
        rows.append(Row(start, num_queries, num_keys, sequence.block_table))
        start += num_queries
    return rows


def _blocks_with_stale_slots(rows: list[Row], block_size: int) -> list[int]:
    """Blocks that this pass begins to fill but leaves with room.

    What a former owner left there must not be read: masked out it still spoils a product if it isn't finite.
    """
    stale = []
    for row in rows:
        last_block_start = (row.num_keys - 1) // block_size * block_size
        if row.first_position <= last_block_start and row.num_keys - last_block_start < block_size:
            stale.append(row.block_table[last_block_start // block_size])
    return stale
