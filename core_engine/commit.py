"""Commit: what an execution gave becomes known tokens, finished sequences and messages."""

from __future__ import annotations

from core_engine.executor import Batch, BatchResult
from core_engine.messages import FirstTokenTiming, Outcome, SequenceOutput, TokenLogprobs
from core_engine.objectives import Attainment
from core_engine.panel import Panel
from core_engine.request import FinishReason, Request, Sequence
from core_engine.state import EngineState, RequestState


class Outbox:
    """Outputs and outcomes on their way out; results that a plan holds back wait here."""

    def __init__(self) -> None:
        self.outputs: list[SequenceOutput] = []
        self.finished: list[Outcome] = []

    def __bool__(self) -> bool:
        return bool(self.outputs or self.finished)

    def release(self) -> tuple[list[SequenceOutput], list[Outcome]]:
        """Everything, held or not."""
        released = self.outputs, self.finished
        self.outputs, self.finished = [], []
        return released

    def drop(self, request_id: str) -> None:
        """Forget the outputs of a request that nobody wants any more."""
        self.outputs = [output for output in self.outputs if output.request_id != request_id]


class Commit:
    """Advances sequences, finishes them and their requests, and tells policies of the finished."""

    def __init__(self, state: EngineState, panel: Panel, outbox: Outbox, attainment: Attainment) -> None:
        self._state = state
        self._attainment = attainment
        self._panel = panel
        self._outbox = outbox
        self._eos = frozenset(state.spec.eos_token_ids)
        self.finished: dict[int, str] = {}  # of this iteration: sequence id -> reason
        self.any_error = False

    def begin(self) -> None:
        """Forget what the last iteration finished."""
        self.finished = {}
        self.any_error = False

    def advance(self, batch: Batch, result: BatchResult) -> None:
        """Take in a whole batch's result."""
        for row, (sequence, computed) in enumerate(zip(batch.sequences, batch.num_kv_tokens, strict=True)):
            before = sequence.num_computed_tokens
            sequence.in_flight = False
            sequence.num_computed_tokens = computed
            if before < sequence.num_prompt_tokens and sequence.block_hashes and row not in result.failed_rows:
                size = batch.block_size
                last = min(computed // size, len(sequence.block_hashes))
                self._state.pool.publish(sequence, before // size, last)
            if computed > sequence.max_computed_tokens:
                sequence.max_computed_tokens = computed
        self._state.running_changed()
        for row, told in result.prompt_logprobs.items():
            sequence = batch.sequences[row]
            self._outbox.outputs += [
                SequenceOutput(sequence.request_id, sequence.sample_index, [], prompt_logprobs=[piece])
                for piece in told
            ]
        now = self._state.clock.now()
        if result.embeddings:
            self._take_embeddings(batch, result, now)
        else:
            self._take_tokens(batch, result, now)
        for row, reason in result.failed_rows.items():
            self.fail(batch.sequences[row], reason)
        self._state.running_changed()  # again: policies that hear of an end may have looked in between

    def fail_batch(self, batch: Batch, reason: str) -> None:
        """The execution raised: every request in the batch ends with an error."""
        for sequence in batch.sequences:
            sequence.in_flight = False
        for sequence in batch.sequences:
            self.fail(sequence, reason)

    def fail(self, sequence: Sequence, reason: str) -> None:
        """End a sequence, and with it its request, with an error."""
        state = self._state.requests.get(sequence.request_id)
        if state is None:
            return
        self.any_error = True
        for other in state.sequences:
            if other.finish_reason is None:
                self._outbox.outputs.append(
                    SequenceOutput(other.request_id, other.sample_index, [], None, "error", None, reason)
                )
                self._finish(other, "error")

    def cancel(self, state: RequestState) -> None:
        """End a request that nobody wants any more; nothing of it is delivered but its outcome."""
        self._outbox.drop(state.request.id)
        for sequence in state.sequences:
            if sequence.finish_reason is None:
                self._finish(sequence, "cancelled")

    def reject(self, request: Request, reason: str) -> None:
        """Tell policies of a request that was refused."""
        outcome = Outcome(
            request_id=request.id,
            finish_reason="rejected",
            num_prompt_tokens=len(request.prompt_token_ids),
            reason=reason,
        )
        self._panel.tell("on_request_finished", request, outcome, self._state)

    def _take_tokens(self, batch: Batch, result: BatchResult, now: float) -> None:
        logprobs = result.logprobs or [None] * len(batch.sample_rows)
        sequences, failed, eos = batch.sequences, result.failed_rows, self._eos
        outputs = self._outbox.outputs
        if self._state.protected:
            for row in batch.sample_rows:
                self._state.protected.pop(sequences[row].id, None)
        for row, token_id, logprob in zip(batch.sample_rows, result.token_ids, logprobs, strict=True):
            if row in failed:
                continue
            sequence = sequences[row]
            num_tokens = sequence.num_tokens + 1
            if (
                num_tokens < sequence.num_tokens_that_may_end
                and token_id not in eos
                and sequence.first_token_seconds is not None
            ):
                # The common case, neither the first token nor the last, at a third of the cost.
                sequence.last_token_seconds = now
                sequence.token_ids.append(token_id)
                sequence.num_tokens = num_tokens
                told = None if logprob is None else [logprob]
                cached = sequence.num_cached_tokens
                outputs.append(
                    SequenceOutput(
                        sequence.request_id, sequence.sample_index, [token_id], told, None, None, None, cached
                    )
                )
            elif (failure := _follow_grammar(sequence, token_id)) is None:
                self._append(sequence, token_id, logprob, now)
            else:
                failed[row] = failure

    def _take_embeddings(self, batch: Batch, result: BatchResult, now: float) -> None:
        for row, embedding in zip(batch.sample_rows, result.embeddings, strict=True):
            if row not in result.failed_rows:
                sequence = batch.sequences[row]
                sequence.first_token_seconds = now
                self._outbox.outputs.append(
                    SequenceOutput(sequence.request_id, 0, [], finish_reason="stop", embedding=embedding)
                )
                self._finish(sequence, "stop")

    def _append(self, sequence: Sequence, token_id: int, logprobs: TokenLogprobs | None, now: float) -> None:
        timing: FirstTokenTiming | None = None
        if sequence.first_token_seconds is None:
            sequence.first_token_seconds = now
            timing = _timing(sequence, now)
        sequence.last_token_seconds = now
        wants_token = sequence.max_tokens > 0
        if wants_token:
            sequence.token_ids.append(token_id)
            sequence.num_tokens += 1
        reason, stop_token_id = self._end(sequence, token_id) if wants_token else ("length", None)
        self._outbox.outputs.append(
            SequenceOutput(
                sequence.request_id,
                sequence.sample_index,
                [token_id] if wants_token else [],
                None if logprobs is None or not wants_token else [logprobs],
                reason,
                stop_token_id,
                None,
                sequence.num_cached_tokens,
                timing=timing,
            )
        )
        if reason is not None:
            self._finish(sequence, reason)

    def _end(self, sequence: Sequence, token_id: int) -> tuple[FinishReason | None, int | None]:
        sampling = sequence.sampling
        num_output_tokens = sequence.num_tokens - sequence.num_prompt_tokens
        is_end = token_id in self._eos
        if sequence.matcher is not None:
            # Whatever else the request says of its end: a complete output ends, and no other does by itself.
            if sequence.matcher.is_complete:
                return "stop", token_id if is_end else None
            is_end = False
        if num_output_tokens < sequence.max_tokens and not is_end and not sampling.stop_token_ids:
            return None, None
        if num_output_tokens >= sampling.min_tokens or num_output_tokens >= sequence.max_tokens:
            if is_end and not sampling.ignore_eos:
                return "stop", token_id
            if token_id in sampling.stop_token_ids:
                return "stop", token_id
        if num_output_tokens >= sequence.max_tokens:
            return "length", None
        return None, None

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        self._state.remove(sequence)
        sequence.finish_reason = reason
        self.finished[sequence.id] = reason
        request_state = self._state.requests[sequence.request_id]
        request_state.num_unfinished -= 1
        if reason in ("stop", "length") and sequence.max_tokens and sequence.kind == "generate":
            self._state.predictor.learn(sequence.tenant, sequence.num_prompt_tokens, sequence.num_output_tokens)
        if request_state.num_unfinished == 0:
            del self._state.requests[sequence.request_id]
            outcome = self._outcome(request_state, reason)
            self._outbox.finished.append(outcome)
            self._attainment.record(request_state.request.class_name, outcome)
            self._panel.tell("on_request_finished", request_state.request, outcome, self._state)

    def _outcome(self, request_state: RequestState, reason: FinishReason) -> Outcome:
        sequences = request_state.sequences
        arrival = sequences[0].arrival_seconds
        start = min((s.start_seconds for s in sequences if s.start_seconds is not None), default=None)
        first = min((s.first_token_seconds for s in sequences if s.first_token_seconds is not None), default=None)
        last = max((s.last_token_seconds for s in sequences if s.last_token_seconds is not None), default=None)
        return Outcome(
            request_id=request_state.request.id,
            finish_reason=reason,
            num_prompt_tokens=sequences[0].num_prompt_tokens,
            num_output_tokens=sum(s.num_output_tokens for s in sequences),
            num_cached_tokens=sequences[0].num_cached_tokens,
            num_preemptions=sum(s.num_preemptions for s in sequences),
            queue_seconds=None if start is None else start - arrival,
            prefill_seconds=None if start is None or first is None else first - start,
            decode_seconds=None if first is None or last is None else last - first,
            total_seconds=self._state.clock.now() - arrival,
            block_hashes=sequences[0].block_hashes,
            setbacks=tuple(request_state.setbacks),
        )


def _timing(sequence: Sequence, first_token_seconds: float) -> FirstTokenTiming:
    start = sequence.start_seconds
    assert start is not None, "what has a token has started"
    return FirstTokenTiming(start - sequence.arrival_seconds, first_token_seconds - start)


def _follow_grammar(sequence: Sequence, token_id: int) -> str | None:
    """Advance its matcher, if any, by what it is about to say; why it fails, where its grammar has given up."""
    if sequence.matcher is None:
        return None
    sequence.matcher.advance(token_id)
    return sequence.matcher.failure
