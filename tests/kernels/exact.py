"""Attention as its definition has it, in float64, one query and one head at a time; and batches to try it on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from core_engine.executor import Batch
from core_engine.model.kernels import AttentionKernel, AttentionShape
from core_engine.model.kv_cache import KVCache
from core_engine.model.layout import BatchLayout, Reach
from core_engine.request import Request, SamplingParams, Sequence

CPU = torch.device("cpu")
UNBOUNDED = Reach()


def shape_of(
    *,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    size: int = 16,
    value_size: int | None = None,
    reach: Reach = UNBOUNDED,
    softcap: float | None = None,
    has_sinks: bool = False,
    dtype: torch.dtype = torch.float32,
) -> AttentionShape:
    return AttentionShape(
        num_heads, num_kv_heads, size, value_size or size, size**-0.5, reach, softcap, has_sinks, dtype, "cpu"
    )


@dataclass(slots=True)
class Trial:
    """Rows of (queries, keys) over scattered blocks of poisoned memory, and what attention must give for them."""

    shape: AttentionShape
    rows: list[tuple[int, int]]
    block_size: int = 16
    magnitude: float = 1.0
    device: torch.device = CPU

    def run(self, kernel: AttentionKernel) -> tuple[torch.Tensor, torch.Tensor]:
        """(what the kernel gives, what is right), `[tokens, heads, value_size]`, the second in float64."""
        shape, generator = self.shape, torch.Generator().manual_seed(len(self.rows) + self.block_size)

        def random(*sizes: int) -> torch.Tensor:
            return (torch.randn(sizes, generator=generator) * self.magnitude).to(self.device, shape.dtype)

        tables = self._tables()
        num_blocks = sum(map(len, tables)) + 3
        cache = KVCache(
            *(
                self._poison(shape.num_kv_heads, num_blocks + 1, self.block_size, size)
                for size in (shape.key_size, shape.value_size)
            )
        )
        cache.clear(torch.tensor([num_blocks], device=self.device))
        keys = [random(shape.num_kv_heads, end, shape.key_size) for _, end in self.rows]
        values = [random(shape.num_kv_heads, end, shape.value_size) for _, end in self.rows]
        queries = [random(shape.num_heads, count, shape.key_size) for count, _ in self.rows]
        sinks = random(shape.num_heads) if shape.has_sinks else None
        before = [(row, 0, end - count) for row, (count, end) in enumerate(self.rows) if end > count]
        now = [(row, end - count, end) for row, (count, end) in enumerate(self.rows)]
        if before:
            layout = self._layout(before, tables)
            if kernel.reads_whole_blocks:
                cache.clear(layout.stale_blocks)
            cache.store(layout.slots, *(_joined(states, before) for states in (keys, values)))
        if now:
            layout = self._layout(now, tables)
            kernel.write(_joined(keys, now), _joined(values, now), cache, layout)
        layout = self._layout(now, tables)
        query = torch.cat(queries, dim=1) if queries else random(shape.num_heads, 0, shape.key_size)
        output = self._poison(query.shape[1], shape.num_heads, shape.value_size)
        kernel.attend(query, cache, kernel.plan(layout, shape, cache.null_block), shape, sinks, output)
        expected = [attend_exactly(queries[row], keys[row], values[row], shape, sinks) for row in range(len(self.rows))]
        return output, torch.cat(expected, dim=1).transpose(0, 1) if expected else output.double()

    def deviation(self, kernel: AttentionKernel) -> float:
        """The largest difference, NaN if anything is missing."""
        found, expected = self.run(kernel)
        return float((found.double() - expected).abs().max()) if found.numel() else 0.0

    def _poison(self, *sizes: int) -> torch.Tensor:
        return torch.full(sizes, math.nan, dtype=self.shape.dtype, device=self.device)

    def _tables(self) -> list[list[int]]:
        counts = [-(-end // self.block_size) for _, end in self.rows]
        order = list(range(0, sum(counts), 2))[::-1] + list(range(1, sum(counts), 2))
        return [[order.pop() for _ in range(count)] for count in counts]

    def _layout(self, spans: list[tuple[int, int, int]], tables: list[list[int]]) -> BatchLayout:
        batch = Batch(iteration=0, block_size=self.block_size)
        for row, first, end in spans:
            request = Request(id=str(row), model="", prompt_token_ids=[0] * end, sampling=SamplingParams())
            sequence = Sequence(row, request, 0, max_tokens=1, seed=0, arrival_seconds=0.0, arrival_iteration=0)
            sequence.block_table = tables[row]
            batch.sequences.append(sequence)
            batch.num_query_tokens.append(end - first)
            batch.num_kv_tokens.append(end)
            batch.token_ids += [0] * (end - first)
            batch.positions += range(first, end)
            batch.slot_mapping += [
                tables[row][i // self.block_size] * self.block_size + i % self.block_size for i in range(first, end)
            ]
        return BatchLayout(batch, self.device)


def _joined(states: list[torch.Tensor], spans: list[tuple[int, int, int]]) -> torch.Tensor:
    """`[heads, tokens, size]` of these spans (row, first, end) of their rows."""
    return torch.cat([states[row][:, first:end] for row, first, end in spans], dim=1)


def attend_exactly(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, shape: AttentionShape, sinks: torch.Tensor | None
) -> torch.Tensor:
    """`[heads, queries, value_size]`, in float64, of the last queries of a sequence."""
    group = shape.num_heads // shape.num_kv_heads
    count, end = query.shape[1], key.shape[1]
    mixed = torch.empty(shape.num_heads, count, shape.value_size, dtype=torch.float64, device=query.device)
    for i in range(count):
        position = end - count + i
        seen = slice(shape.reach.first_key(position), position + 1)
        for head in range(shape.num_heads):
            scores = key[head // group, seen].double() @ query[head, i].double() * shape.scaling
            if shape.softcap is not None:
                scores = torch.tanh(scores / shape.softcap) * shape.softcap
            if sinks is not None:
                scores = torch.cat([scores, sinks[head : head + 1].double()])
            weights = scores.softmax(0)[: position + 1 - seen.start]
            mixed[head, i] = weights @ value[head // group, seen].double()
    return mixed
