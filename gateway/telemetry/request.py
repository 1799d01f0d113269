"""One request as telemetry sees it: its server span with children, and the latencies a client feels."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from opentelemetry import propagate
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from core_engine import Outcome, Setback
from gateway.telemetry import names
from gateway.telemetry.engine import LABEL_SETS, OTHER
from gateway.telemetry.instruments import Instruments
from gateway.telemetry.latency import TokenHistogram, TokenLatencies


class RequestAttributes(TypedDict, total=False):
    """What a client asked for, as far as a span tells it; None is left out. Never any content."""

    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    seed: int | None
    stream: bool | None
    stop: Sequence[str] | None
    n: int | None
    frequency_penalty: float | None
    presence_penalty: float | None
    conversation_id: str | None
    output_type: str | None


class RequestMetrics:
    """The instruments that requests record to, shared by all of them."""

    def __init__(self, instruments: Instruments, token_latencies: TokenLatencies) -> None:
        self._instruments = instruments
        self._token_latencies = token_latencies
        self.duration = instruments.histograms["request_duration"]
        self.e2e = instruments.histograms["e2e"]
        self.time_to_first_token = instruments.histograms["time_to_first_token"]
        self.time_per_output_token = instruments.histograms["time_per_output_token"]
        self._error_types: set[str] = set()

    def labels(self, operation: str, model: str) -> dict[str, str]:
        """Labels of a request; a model that isn't served never becomes one."""
        labels = {names.OPERATION_NAME: operation, names.PROVIDER_NAME: names.PROVIDER}
        served = self._instruments.served_name(model)
        if served is None:
            return labels | {names.MODEL_LABEL: OTHER}
        return labels | {names.MODEL_LABEL: served, names.REQUEST_MODEL: model}

    def token_latencies(self, labels: Mapping[str, str]) -> TokenHistogram:
        """Where the times between a request's tokens are counted."""
        return self._token_latencies.of(labels[names.MODEL_LABEL])

    def error_label(self, error_type: str) -> str:
        """The type as a label: itself, unless there are too many already."""
        if len(self._error_types) < LABEL_SETS:
            self._error_types.add(error_type)
        return error_type if error_type in self._error_types else OTHER


class RequestSpan:
    """Follows one HTTP request from its arrival (construction) to its end (`finish` or `error`, once).

    With a tracer it becomes a server span `{operation} {model}`, a child of the trace that the
    client's `traceparent` names, with children `queue`, `prefill` and `decode` from the engine's own
    measurements. Calls after the end do nothing.
    """

    def __init__(
        self,
        metrics: RequestMetrics,
        tracer: Tracer | None,
        clock: Callable[[], float],
        operation: str,
        model: str,
        headers: Mapping[str, str],
        attributes: RequestAttributes,
    ) -> None:
        self._metrics = metrics
        self._tracer = tracer
        self._clock = clock
        self._labels = metrics.labels(operation, model)
        self._token_latencies = metrics.token_latencies(self._labels)
        self._choices = attributes.get("n") or 1
        self._started = clock()
        self._submitted: float | None = None
        self._first_token: float | None = None
        self._last_tokens: dict[int, float] = {}  # by prompt
        self._ended = False
        self._span: Span | None = None
        if tracer is not None:
            self._started_ns = time.time_ns()
            self._span = tracer.start_span(
                f"{operation} {model}" if names.REQUEST_MODEL in self._labels else operation,
                propagate.extract(headers),
                SpanKind.SERVER,
                _span_attributes(operation, model, attributes),
                start_time=self._started_ns,
            )

    def submitted(self) -> None:
        """Note that the request is about to be handed to the engine: the queue span starts here."""
        if not self._ended:
            self._submitted = self._clock()

    def first_token(self) -> None:
        """Note that the first token is there; later calls do nothing."""
        if not self._ended and self._first_token is None:
            self._first_token = self._clock()
            self._metrics.time_to_first_token.record(self._first_token - self._started, self._labels)

    def tokens(self, count: int, prompt_index: int = 0) -> None:
        """Note that `count` tokens of all choices of a prompt came at once; the first of all is the first token."""
        if self._ended or not count:
            return
        if self._first_token is None:
            self.first_token()
        now = self._clock()
        previous = self._last_tokens.get(prompt_index)
        if previous is not None:
            seconds = now - previous
            if count > 1:  # choices run side by side: each of them got about count / choices tokens in this time
                seconds *= min(self._choices, count) / count
            self._token_latencies.record(seconds, count)
        self._last_tokens[prompt_index] = now

    def finish(
        self, *outcomes: Outcome | None, finish_reasons: Sequence[str] = (), response_id: str | None = None
    ) -> None:
        """End well, with the outcome of every engine request that this one became.

        None stands for one that the engine has not told of yet, where the client left early.
        """
        if self._ended:
            return
        known = [outcome for outcome in outcomes if outcome is not None]
        elapsed = self._clock() - self._started
        self._metrics.e2e.record(elapsed, self._labels)
        for outcome in known:
            tokens_after_first = outcome.num_output_tokens / self._choices - 1
            if outcome.decode_seconds is not None and tokens_after_first > 0:
                self._metrics.time_per_output_token.record(outcome.decode_seconds / tokens_after_first, self._labels)
        if self._span is not None:
            self._describe(self._span, known, elapsed)
            self._span.set_attribute(names.RESPONSE_FINISH_REASONS, list(finish_reasons))
            if response_id is not None:
                self._span.set_attribute(names.RESPONSE_ID, response_id)
        self._end(elapsed, self._labels)

    def error(self, error_type: str, *, client_at_fault: bool = False) -> None:
        """End in an error; `error_type` is a stable identifier such as the code of the answer.

        A client's mistake is no failure of the server, so its span's status stays unset.
        """
        if self._ended:
            return
        if self._span is not None:
            self._span.set_attribute(names.ERROR_TYPE, error_type)
            if not client_at_fault:
                self._span.set_status(Status(StatusCode.ERROR))
        labels = {**self._labels, names.ERROR_TYPE: self._metrics.error_label(error_type)}
        self._end(self._clock() - self._started, labels)

    def _end(self, elapsed_seconds: float, labels: Mapping[str, str]) -> None:
        self._ended = True
        self._metrics.duration.record(elapsed_seconds, labels)
        if self._span is not None:
            self._span.end(self._nanoseconds(elapsed_seconds))

    def _nanoseconds(self, elapsed_seconds: float) -> int:
        return self._started_ns + int(elapsed_seconds * 1e9)

    def _describe(self, span: Span, outcomes: list[Outcome], elapsed_seconds: float) -> None:
        attributes: dict[str, Any] = {
            names.RESPONSE_MODEL: self._labels[names.MODEL_LABEL],
            names.USAGE_INPUT_TOKENS: sum(outcome.num_prompt_tokens for outcome in outcomes),
            names.USAGE_OUTPUT_TOKENS: sum(outcome.num_output_tokens for outcome in outcomes),
            names.USAGE_CACHED_TOKENS: sum(outcome.num_cached_tokens for outcome in outcomes),
            names.NUM_PREEMPTIONS: sum(outcome.num_preemptions for outcome in outcomes),
            names.LATENCY_E2E: elapsed_seconds,
            names.LATENCY_QUEUE: _longest(outcome.queue_seconds for outcome in outcomes),
            names.LATENCY_PREFILL: _longest(outcome.prefill_seconds for outcome in outcomes),
            names.LATENCY_DECODE: _longest(outcome.decode_seconds for outcome in outcomes),
            names.LATENCY_INFERENCE: _longest(
                outcome.prefill_seconds + (outcome.decode_seconds or 0.0)
                for outcome in outcomes
                if outcome.prefill_seconds is not None
            ),
        }
        if self._first_token is not None:
            first_token = self._first_token - self._started
            attributes[names.LATENCY_FIRST_TOKEN] = attributes[names.RESPONSE_TIME_TO_FIRST_CHUNK] = first_token
        span.set_attributes({key: value for key, value in attributes.items() if value is not None})
        for index, outcome in enumerate(outcomes):
            self._add_phases(span, outcome, {names.PROMPT_INDEX: index} if len(outcomes) > 1 else {}, elapsed_seconds)

    def _add_phases(self, span: Span, outcome: Outcome, attributes: dict[str, int], elapsed_seconds: float) -> None:
        """Add the children, one after the other, none of them outside of the parent."""
        assert self._tracer is not None
        phases = {
            "queue": outcome.queue_seconds,
            "prefill": outcome.prefill_seconds,
            "decode": outcome.decode_seconds,
        }
        total = sum(seconds for seconds in phases.values() if seconds is not None)
        submitted = self._started if self._submitted is None else self._submitted
        offset = max(0.0, min(submitted - self._started, elapsed_seconds - total))
        arrival = offset
        setbacks = deque(outcome.setbacks)
        context = set_span_in_context(span)
        for name, seconds in phases.items():
            if seconds is None:
                continue
            child = self._tracer.start_span(
                name, context, attributes=attributes, start_time=self._nanoseconds(min(offset, elapsed_seconds))
            )
            offset += seconds
            while setbacks and arrival + setbacks[0].seconds <= offset:
                self._add_event(child, setbacks.popleft(), arrival, elapsed_seconds)
            child.end(self._nanoseconds(min(offset, elapsed_seconds)))

    def _add_event(self, child: Span, setback: Setback, arrival: float, elapsed_seconds: float) -> None:
        attributes: dict[str, str | int] = {names.SETBACK_CAUSE: setback.cause}
        if self._choices > 1:
            attributes[names.SAMPLE_INDEX] = setback.sample_index
        child.add_event(setback.kind, attributes, self._nanoseconds(min(arrival + setback.seconds, elapsed_seconds)))


class SilentSpan(RequestSpan):
    """What requests get while telemetry is off: it has ended before it began."""

    def __init__(self) -> None:
        self._ended = True


def _longest(seconds: Iterable[float | None]) -> float | None:
    return max((each for each in seconds if each is not None), default=None)


def _span_attributes(operation: str, model: str, attributes: RequestAttributes) -> dict[str, Any]:
    described: dict[str, Any] = {
        names.OPERATION_NAME: operation,
        names.PROVIDER_NAME: names.PROVIDER,
        names.REQUEST_MODEL: model,
    }
    for key, value in attributes.items():
        if value is not None and (key, value) != ("n", 1):
            described[names.REQUEST_ATTRIBUTES[key]] = value
    return described
