"""How attention of a mixed batch is divided into pieces of work, for kernels that compute it in one launch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from core_engine.model.layout import Reach, Row


class Item(NamedTuple):
    """Some queries of one sequence against a range of its keys."""

    query: int  # index in the batch of the first of its queries
    num_queries: int  # one if it is cut
    position: int  # in its sequence, of the first query
    first_key: int
    end_key: int
    table: int  # where its sequence's block table begins among all of them
    part: int = -1  # where a cut item leaves its result; -1 for a whole one
    unused: int = 0

    @property
    def num_keys(self) -> int:
        """Keys from the first that any of its queries sees to the last."""
        return self.end_key - self.first_key


class Merge(NamedTuple):
    """Parts whose results together are the attention of one query."""

    query: int
    first_part: int
    num_parts: int
    unused: int = 0


def items_of(rows: Iterable[Row], reach: Reach, tile_queries: int) -> list[Item]:
    """Tiles of at most so many queries; a decode is a tile of one."""
    items = []
    table = 0
    for row in rows:
        for offset in range(0, row.num_queries, tile_queries):
            num_queries = min(tile_queries, row.num_queries - offset)
            position = row.first_position + offset
            end_key = position + num_queries
            items.append(Item(row.start + offset, num_queries, position, reach.first_key(position), end_key, table))
        table += len(row.block_table)
    return items


def block_tables(rows: Iterable[Row]) -> list[int]:
    """All block tables one after another, as `Item.table` counts them."""
    return [block for row in rows for block in row.block_table]


def cut_decodes(items: list[Item], max_keys: int) -> tuple[list[Item], list[Merge], int]:
    """(items, merges, number of parts), where items of one query and more keys than that are cut into equal parts."""
    whole_or_cut: list[Item] = []
    merges: list[Merge] = []
    num_parts = 0
    for item in items:
        if item.num_queries > 1 or item.num_keys <= max_keys:
            whole_or_cut.append(item)
            continue
        count = -(-item.num_keys // max_keys)
        bounds = [item.first_key + item.num_keys * i // count for i in range(count + 1)]
        merges.append(Merge(item.query, num_parts, count))
        whole_or_cut += (
            item._replace(first_key=bounds[i], end_key=bounds[i + 1], part=num_parts + i) for i in range(count)
        )
        num_parts += count
    return whole_or_cut, merges, num_parts
