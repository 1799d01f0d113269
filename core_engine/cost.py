"""An on-line model of how long an iteration takes, and the exact computation it needs.

An iteration reads the weights once, reads the keys and values of its sequences, and computes linear
layers for each row and attention for each pair of query and key. Which of these dominates changes
with the number of rows, so the time is predicted as

    max(memory, compute) = max(m(rows) + k * kv_tokens, c(rows) + a * attention_pairs)

in which m and c are one piecewise linear table over the rows (knots at powers of two, so that the
step from memory bound to compute bound is learnt, not assumed) and the larger of the two variable
terms is added to it. Table and slopes follow the measured times by normalised least mean squares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_KNOTS = tuple(2**i for i in range(16))  # 1 to 32,768 rows
_RATE = 0.3  # how much of an error one iteration corrects
_ERROR_MEMORY = 0.05  # weight of the newest error in the moving error
TRUSTED_ERROR = 0.15  # above it predictions are not to be used


@dataclass(slots=True)
class Load:
    """The work of an iteration: what its time depends on."""

    rows: int = 0
    attention_pairs: int = 0  # queries times the keys each one sees
    kv_tokens: int = 0  # keys read, each sequence's once

    @classmethod
    def of(cls, chunks: Iterable[tuple[int, int]]) -> Load:
        """The load of sequences given as (computed tokens, tokens to compute now)."""
        rows = pairs = keys = 0
        for computed, tokens in chunks:
            rows += tokens
            pairs += tokens * computed + tokens * (tokens + 1) // 2
            keys += computed + tokens
        return cls(rows, pairs, keys)

    @classmethod
    def of_decodes(cls, computed_tokens: Sequence[int]) -> Load:
        """The load of one token each, after that many computed ones."""
        keys = sum(computed_tokens) + len(computed_tokens)
        return cls(len(computed_tokens), keys, keys)

    def add(self, num_computed_tokens: int, num_tokens: int) -> None:
        """Add one sequence that computes `num_tokens` after `num_computed_tokens`."""
        self.rows += num_tokens
        self.attention_pairs += num_tokens * num_computed_tokens + num_tokens * (num_tokens + 1) // 2
        self.kv_tokens += num_computed_tokens + num_tokens

    def plus(self, num_computed_tokens: int, num_tokens: int) -> Load:
        """A copy with one more sequence."""
        total = Load(self.rows, self.attention_pairs, self.kv_tokens)
        total.add(num_computed_tokens, num_tokens)
        return total


class CostModel:
    """Predicts an iteration's seconds from its Load; its own error says whether to believe it.

    `row_flops` and `attention_flops` are the model's exact weights: floating point operations of one
    row in all linear layers, and of one query against one key.
    """

    def __init__(self, row_flops: float = 1.0, attention_flops: float = 0.0) -> None:
        self._row_flops = row_flops
        self._attention_flops = attention_flops
        self._table = [0.0] * len(_KNOTS)
        self._slopes = [0.0, 0.0]  # seconds per attention pair, per key read
        self._scales = [1.0, 1.0]  # largest seen, so that the two learn alike
        self._learnt = 0
        self._seconds_per_flop = 0.0  # moving; for as long as the table can't be trusted
        self.error = 1.0  # moving relative error of predictions made before learning; 1.0 at first

    @property
    def trusted(self) -> bool:
        """Whether predictions are good enough to act on; else shares of the exact computation are."""
        return self.error <= TRUSTED_ERROR

    def seconds(self, load: Load) -> float:
        """Predicted duration of an iteration with this load; 0 for none."""
        if load.rows == 0:
            return 0.0
        low, share = _knot(load.rows)
        base = self._table[low] * (1 - share) + self._table[low + 1] * share
        return base + max(self._slopes[0] * load.attention_pairs, self._slopes[1] * load.kv_tokens)

    def flops(self, load: Load) -> float:
        """Exact floating point operations of the load."""
        return load.rows * self._row_flops + load.attention_pairs * self._attention_flops

    def estimate(self, load: Load) -> float:
        """What to act on: `seconds` or, while that can't be trusted, the computation at the mean measured speed."""
        return self.seconds(load) if self.trusted else self.flops(load) * self._seconds_per_flop

    def prefill_seconds(self, everything: Load, decodes: Load) -> float:
        """The prompts' part: what the iteration is estimated to take more than its decodes alone would."""
        return max(0.0, self.estimate(everything) - self.estimate(decodes))

    def learn(self, load: Load, seconds: float) -> None:
        """Take in one measured iteration."""
        if load.rows == 0 or seconds <= 0:
            return
        speed = seconds / self.flops(load)
        self._seconds_per_flop += (_ERROR_MEMORY if self._learnt else 1.0) * (speed - self._seconds_per_flop)
        predicted = self.seconds(load)
        if self._learnt:
            self.error += _ERROR_MEMORY * (min(1.0, abs(predicted - seconds) / seconds) - self.error)
        else:
            self._table = [seconds * max(1.0, knot / load.rows) for knot in _KNOTS]
            predicted = seconds
        self._learnt += 1

        low, share = _knot(load.rows)
        which = 0 if self._slopes[0] * load.attention_pairs >= self._slopes[1] * load.kv_tokens else 1
        amount = load.attention_pairs if which == 0 else load.kv_tokens
        self._scales[which] = max(self._scales[which], amount)
        feature = 0.5 * amount / self._scales[which]
        norm = (1 - share) ** 2 + share**2 + feature**2
        step = _RATE * (seconds - predicted) / norm
        self._table[low] = max(0.0, self._table[low] + step * (1 - share))
        self._table[low + 1] = max(0.0, self._table[low + 1] + step * share)
        slope = self._slopes[which] + step * feature * 0.5 / self._scales[which]
        self._slopes[which] = max(0.0, slope)
        self._keep_monotone(low)

    def _keep_monotone(self, low: int) -> None:
        """More rows never take less time: push the neighbours of a corrected knot along."""
        for i in range(low, 0, -1):
            if self._table[i - 1] <= self._table[i]:
                break
            self._table[i - 1] = self._table[i]
        for i in range(low, len(_KNOTS) - 1):
            if self._table[i + 1] < self._table[i]:
                self._table[i + 1] = self._table[i]


def _knot(rows: int) -> tuple[int, float]:
    """Index of the knot at or below `rows`, and how far on the way to the next, from 0 to 1."""
    low = min(rows.bit_length() - 1, len(_KNOTS) - 2)
    return low, min(1.0, (rows - _KNOTS[low]) / _KNOTS[low])
