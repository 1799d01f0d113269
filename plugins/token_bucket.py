"""Limits of requests and tokens per minute and tenant, told in the headers that OpenAI's clients read."""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated

import msgspec

from core_engine.hookspecs import hookimpl
from core_engine.messages import Outcome
from core_engine.plan import Admit, Reject
from core_engine.request import Request
from core_engine.view import EngineView

_MINUTE_SECONDS = 60.0
_ROUNDING = 1e-6  # what a sum of floats may be off
Amount = Annotated[int, msgspec.Meta(ge=1)]


class TokenBucketOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requests and tokens per minute of each tenant, 1 up; `max_tenants` that are remembered, 1 up."""

    requests_per_minute: Amount = 600
    tokens_per_minute: Amount = 600_000
    max_tenants: Amount = 10_000


class Bucket:
    """Holds up to `capacity`, which flows in again within a minute."""

    def __init__(self, capacity: int, now: float) -> None:
        self.capacity = capacity
        self._level = float(capacity)
        self._at_seconds = now

    def level(self, now: float) -> float:
        """What is in it; below 0 while more was taken than there was."""
        self._level = min(self.capacity, self._level + (now - self._at_seconds) * self.capacity / _MINUTE_SECONDS)
        self._at_seconds = now
        return self._level

    def take(self, amount: float, now: float) -> None:
        """Take that much out or, where it is negative, put it back."""
        self._level = self.level(now) - amount

    def seconds_until(self, amount: float, now: float) -> float:
        """Until it holds that much, or is full."""
        missing = min(amount, self.capacity) - self.level(now)
        return missing * _MINUTE_SECONDS / self.capacity if missing > _ROUNDING else 0.0


class TokenBucket:
    """Limits requests and tokens per minute for each tenant, and says in headers how much is left.

    A request takes its prompt and max_tokens (without one, the mean output so far) from the tenant's bucket on
    admission; when it ends, or another policy refuses it, what it did not use goes back. A full bucket holds a
    minute's worth; a request that is larger than that is admitted when the bucket is full. Options:
    `requests_per_minute` (600), `tokens_per_minute` (600,000), `max_tenants` (10,000; the least recently seen are
    forgotten, and begin with full buckets). Source: token buckets, with OpenAI's `x-ratelimit-*` headers. Guarantees
    that within T minutes a tenant is admitted at most (1 + T) times its limits, refunds and one
    larger request aside.
    """

    Options = TokenBucketOptions
    hookspec_range = (1, 1)

    def __init__(self, options: TokenBucketOptions, seed: int) -> None:
        self.options = options
        self._buckets: OrderedDict[str, tuple[Bucket, Bucket]] = OrderedDict()  # requests and tokens, by tenant
        self._charges: dict[str, tuple[Request, float]] = {}  # tokens taken by those that have not ended

    @hookimpl
    def admit_request(self, request: Request, view: EngineView) -> Admit | Reject:
        """Charge both buckets, or refuse until both would hold enough."""
        now = view.now
        requests, tokens = self._of(request.tenant, now)
        output = request.sampling.max_tokens or round(view.mean_output_tokens)
        wanted = float(len(request.prompt_token_ids) + output * request.n)
        until_requests, until_tokens = requests.seconds_until(1, now), tokens.seconds_until(wanted, now)
        if until_requests or until_tokens:
            what, bucket = ("requests", requests) if until_requests >= until_tokens else ("tokens", tokens)
            return Reject(
                reason="rate_limit_exceeded",
                message=f"the limit of {bucket.capacity} {what} per minute is reached",
                retry_after_seconds=max(until_requests, until_tokens),
                limits=_headers(requests, tokens, now),
            )
        requests.take(1, now)
        tokens.take(wanted, now)
        self._charges[request.id] = (request, wanted)
        return Admit(_headers(requests, tokens, now))

    @hookimpl
    def on_request_finished(self, request: Request, outcome: Outcome, view: EngineView) -> None:
        """Settle: put back what was taken and not used, or take what was used beyond that."""
        charged, taken = self._charges.get(request.id, (None, 0.0))
        if charged is not request:
            return
        del self._charges[request.id]
        buckets = self._buckets.get(request.tenant)
        if buckets is None:
            return
        requests, tokens = buckets
        if outcome.finish_reason == "rejected":
            requests.take(-1, view.now)
            tokens.take(-taken, view.now)
        else:
            tokens.take(outcome.num_prompt_tokens + outcome.num_output_tokens - taken, view.now)

    @hookimpl
    def on_retire(self) -> None:
        """Nobody tells how those end that run now."""
        self._charges.clear()

    def _of(self, tenant: str, now: float) -> tuple[Bucket, Bucket]:
        if tenant not in self._buckets:
            if len(self._buckets) >= self.options.max_tenants:
                self._buckets.popitem(last=False)
            limits = self.options.requests_per_minute, self.options.tokens_per_minute
            self._buckets[tenant] = Bucket(limits[0], now), Bucket(limits[1], now)
        self._buckets.move_to_end(tenant)
        return self._buckets[tenant]


def _headers(requests: Bucket, tokens: Bucket, now: float) -> dict[str, str]:
    headers = {}
    for name, bucket in (("requests", requests), ("tokens", tokens)):
        headers[f"x-ratelimit-limit-{name}"] = str(bucket.capacity)
        headers[f"x-ratelimit-remaining-{name}"] = str(max(0, int(bucket.level(now))))
        headers[f"x-ratelimit-reset-{name}"] = _duration(bucket.seconds_until(bucket.capacity, now))
    return headers


def _duration(seconds: float) -> str:
    """As OpenAI writes it: `120ms`, `8.64s`, `6m0s`."""
    milliseconds = round(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    return (f"{minutes}m" if minutes else "") + f"{rest / 1000:g}s"
