"""The built-in prediction of how many tokens a request will generate."""

from __future__ import annotations

import math
from collections import OrderedDict

_QUANTILE = 0.75  # above the median: an estimate too low costs a preemption, one too high a little room
_STEP = 0.1
_MAX_BUCKETS = 4096  # tenants come and go; the least recently seen bucket goes first


class OutputPredictor:
    """A moving quantile of output lengths by (tenant, prompt-length bucket), over a common one.

    Each observation moves the estimate by a step up or down so that it settles where a share
    `_QUANTILE` of the outputs is shorter (stochastic quantile tracking, on a log scale).
    """

    def __init__(self) -> None:
        self._estimates: OrderedDict[tuple[str, int], float] = OrderedDict()
        self._common: float | None = None  # all are logarithms of tokens
        self._count = 0
        self._total = 0

    @property
    def mean_output_tokens(self) -> float:
        """Mean over all finished requests; 0 before the first."""
        return self._total / self._count if self._count else 0.0

    def predict(self, tenant: str, num_prompt_tokens: int, max_tokens: int) -> int:
        """Expected output tokens, from 1 to `max_tokens`, which is the answer while nothing is known."""
        estimate = self._estimates.get(_key(tenant, num_prompt_tokens), self._common)
        if estimate is None:
            return max_tokens
        return max(1, min(max_tokens, round(math.exp(estimate))))

    def learn(self, tenant: str, num_prompt_tokens: int, num_output_tokens: int) -> None:
        """Take in one request that ended by itself."""
        self._count += 1
        self._total += num_output_tokens
        observed = math.log(max(1, num_output_tokens))
        key = _key(tenant, num_prompt_tokens)
        self._common = _moved(self._common, observed)
        self._estimates[key] = _moved(self._estimates.get(key, self._common), observed)
        self._estimates.move_to_end(key)
        if len(self._estimates) > _MAX_BUCKETS:
            self._estimates.popitem(last=False)


def _key(tenant: str, num_prompt_tokens: int) -> tuple[str, int]:
    return tenant, num_prompt_tokens.bit_length()


def _moved(estimate: float | None, observed: float) -> float:
    if estimate is None:
        return observed
    return estimate + _STEP * (_QUANTILE if observed > estimate else _QUANTILE - 1)
