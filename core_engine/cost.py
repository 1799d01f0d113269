"""An on-line model of how long an iteration takes, and the exact computation it needs.

An iteration reads the weights once, reads the keys and values of its sequences, and computes linear
layers for each row and attention for each pair of query and key. So its time is predicted as

    max(memory, compute) of the linear layers + attention
    = table(rows) + a * attention_pairs + k * kv_tokens

in which the table is piecewise linear with knots at powers of two, so that the step from memory bound
to compute bound is learnt, not assumed. All of it is fitted to the measured times by least squares of the
relative error, with older iterations forgotten; what hasn't been seen lately stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_KNOTS = tuple(2**i for i in range(16))  # 1 to 32,768 rows
_NUM_KNOTS = len(_KNOTS)
_FORGETTING = 0.98  # weight of an iteration against the next
_STIFFNESS = 0.02  # of what was learnt before, against one new iteration
_FIT_EVERY = 8  # iterations, after as many in which each is fitted to at once
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
        # What each knot adds to the one before, then seconds per scaled attention pair and per scaled key:
        # none of them is negative, so that more work never takes less time.
        self._weights = np.zeros(_NUM_KNOTS + 2)
        self._table = [0.0] * _NUM_KNOTS  # seconds at each knot
        self._slopes = [0.0, 0.0]  # seconds per attention pair, per key
        self._scales = np.ones(2)  # bounds of pairs and keys seen, so that all features are of the same order
        self._products = np.zeros((_NUM_KNOTS + 2, _NUM_KNOTS + 2))  # decaying sums of feature * feature
        self._targets = np.zeros(_NUM_KNOTS + 2)  # decaying sums of feature * seconds
        self._learnt = 0
        self._recent: list[tuple[Load, float]] = []  # measured since the last fit
        self._seconds_per_flop = 0.0  # moving; for as long as the fit can't be trusted
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
        linear = self._table[low] * (1 - share) + self._table[low + 1] * share
        return linear + self._slopes[0] * load.attention_pairs + self._slopes[1] * load.kv_tokens

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
        if self._learnt:
            off = abs(self.seconds(load) - seconds) / seconds
            memory = max(_ERROR_MEMORY, 1 / self._learnt)
            self.error += memory * (min(1.0, off) - self.error)
        else:
            # In proportion, below too: were few rows thought to take as long, gates would let in so many prompts that
            # no iteration of few rows came to show the opposite.
            first = [seconds * knot / load.rows for knot in _KNOTS]
            self._weights[:_NUM_KNOTS] = np.diff(first, prepend=0.0)
        speed = seconds / self.flops(load)
        self._seconds_per_flop += (_ERROR_MEMORY if self._learnt else 1.0) * (speed - self._seconds_per_flop)
        self._learnt += 1
        self._recent.append((load, seconds))
        if self._learnt <= _FIT_EVERY or self._learnt % _FIT_EVERY == 0:
            self._take_in_recent()
            self._fit(_STIFFNESS / seconds**2)

    def _take_in_recent(self) -> None:
        """Add the iterations since the last fit to the sums, all at once."""
        for load, _ in self._recent:
            self._rescale(load)
        features = np.array([self._features(load) for load, _ in self._recent])
        seconds = np.array([measured for _, measured in self._recent])
        count = len(seconds)
        weights = _FORGETTING ** np.arange(count - 1, -1, -1) / seconds**2  # so that relative errors count
        self._products *= _FORGETTING**count
        self._products += features.T @ (weights[:, None] * features)
        self._targets *= _FORGETTING**count
        self._targets += features.T @ (weights * seconds)
        self._recent.clear()

    def _features(self, load: Load) -> FloatArray:
        """How much of each weight the load takes."""
        low, share = _knot(load.rows)
        features = np.zeros(_NUM_KNOTS + 2)
        features[: low + 1] = 1.0
        features[low + 1] = share
        features[_NUM_KNOTS] = load.attention_pairs / self._scales[0]
        features[_NUM_KNOTS + 1] = load.kv_tokens / self._scales[1]
        return features

    def _rescale(self, load: Load) -> None:
        if load.attention_pairs <= self._scales[0] and load.kv_tokens <= self._scales[1]:
            return
        # To a power of two, since in a long run of decodes every iteration reads more keys than the one before.
        wanted = [1 << (load.attention_pairs - 1).bit_length(), 1 << (load.kv_tokens - 1).bit_length()]
        grown = np.maximum(1.0, np.array(wanted) / self._scales)
        self._scales *= grown
        self._weights[_NUM_KNOTS:] *= grown
        self._targets[_NUM_KNOTS:] /= grown
        self._products[_NUM_KNOTS:, :] /= grown[:, None]
        self._products[:, _NUM_KNOTS:] /= grown

    def _fit(self, stiffness: float) -> None:
        """Solve for weights that are not negative, drawn a little towards what they were."""
        stiffness = max(stiffness, 1e-9 * float(self._products.max()))  # else rounding leaves it singular
        system = self._products + stiffness * np.eye(len(self._weights))
        targets = self._targets + stiffness * self._weights
        free = np.arange(len(self._weights))
        while True:
            solved = np.linalg.solve(system[np.ix_(free, free)], targets[free])
            if solved.min() >= 0:
                break
            free = free[solved > 0]
        self._weights[:] = 0.0
        self._weights[free] = solved
        self._table = np.cumsum(self._weights[:_NUM_KNOTS]).tolist()
        self._slopes = (self._weights[_NUM_KNOTS:] / self._scales).tolist()


def _knot(rows: int) -> tuple[int, float]:
    """Index of the knot at or below `rows`, and how far on the way to the next, from 0 to 1."""
    low = min(rows.bit_length() - 1, len(_KNOTS) - 2)
    return low, min(1.0, (rows - _KNOTS[low]) / _KNOTS[low])
