"""How long a model's linear layers take by themselves, by number of rows, as measured."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class LinearTable(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds by number of rows of `body`, all layers but the output layer, and of `head`, that one.

    Between the measured numbers seconds are interpolated; beyond the largest they grow in proportion.
    """

    body: dict[int, float]
    head: dict[int, float]

    def seconds(self, schedule: Iterable[tuple[int, int]]) -> float:
        """Of these (rows through the model, rows through the output layer), added up."""
        return sum(_at(self.body, rows) + (_at(self.head, heads) if heads else 0.0) for rows, heads in schedule)

    def sampled_seconds(self) -> dict[int, float]:
        """Of a pass in which every row is sampled, by number of rows."""
        return {rows: self.body[rows] + self.head[rows] for rows in self.body}


def _at(table: dict[int, float], rows: int) -> float:
    largest = max(table)
    if rows >= largest:
        return table[largest] * rows / largest
    above = min(point for point in table if point >= rows)
    if above == rows:
        return table[rows]
    below = max(point for point in table if point < rows)
    return table[below] + (table[above] - table[below]) * (rows - below) / (above - below)
