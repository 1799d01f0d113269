"""Reporting: the numbers and the record of each iteration, for metrics, policies and the cost model."""

from __future__ import annotations

from collections import Counter

from core_engine.commit import Commit
from core_engine.config import EngineConfig
from core_engine.cost import Load
from core_engine.deciding import Deciding
from core_engine.executor import Batch
from core_engine.messages import EngineInfo, IterationStats
from core_engine.objectives import Attainment
from core_engine.panel import Panel
from core_engine.plan import IterationRecord, RecordedRow
from core_engine.request import Sequence
from core_engine.state import EngineState


class Reporting:
    """Watches one iteration after the other; `before`, `executed` and `after` are called in that order."""

    def __init__(self, state: EngineState, panel: Panel, attainment: Attainment) -> None:
        self._state = state
        self._attainment = attainment
        self._panel = panel
        self._started_seconds = 0.0
        self._ended_seconds: float | None = None  # None while there was no work in between
        self._duration_seconds = 0.0
        self._load = Load()
        self._decodes = Load()
        self._prompts = Load()
        self._previous_preemptions = 0
        self._previous_rescues: Counter[str] = Counter()
        self._rows: tuple[RecordedRow, ...] = ()
        self._served: dict[str, int] = {}

    def before(self, batch: Batch) -> None:
        """Just before the execution: what it will have to do."""
        state = self._state
        num_rows = len(batch.sequences)
        # A decode samples after its one token; neither is so for most prompts, and of a prompt's last token neither.
        candidates = set(batch.sample_rows)
        others = [
            row
            for row, num_tokens in enumerate(batch.num_query_tokens)
            if num_tokens != 1 or row not in candidates or batch.num_kv_tokens[row] == 1
        ]
        prompts = Load()
        served = Counter([sequence.tenant for sequence in batch.sequences])
        for row in others:
            sequence, num_tokens = batch.sequences[row], batch.num_query_tokens[row]
            prompts.add(sequence.num_computed_tokens, num_tokens)
            served[sequence.tenant] += _num_new_tokens(sequence, num_tokens) - 1
        keys = sum(batch.num_kv_tokens)
        decodes = Load(num_rows - len(others), keys - prompts.kv_tokens, keys - prompts.kv_tokens)
        self._load = state.last_load = Load(
            batch.total_tokens + batch.idle_rows, decodes.attention_pairs + prompts.attention_pairs, keys
        )
        self._decodes = state.last_decode_load = decodes
        self._prompts, self._served = prompts, dict(+served)
        if self._panel.listens("on_iteration_end"):
            self._rows = tuple(map(_row, batch.sequences, batch.num_query_tokens))
        self._started_seconds = state.clock.now()

    def executed(self, batch: Batch, *, learn: bool) -> None:
        """Just after the execution; a failed one teaches nothing."""
        self._duration_seconds = self._state.clock.now() - self._started_seconds
        if learn:
            self._state.cost_model.learn(self._load, self._duration_seconds)

    def after(
        self, batch: Batch, started: list[Sequence], deciding: Deciding, commit: Commit, delivered: bool
    ) -> IterationStats:
        """Tell policies the record, and return the numbers."""
        state, panel = self._state, self._panel
        if panel.listens("on_iteration_end"):
            record = self._record(batch, started, deciding, commit, delivered)
            panel.tell("on_iteration_end", record, state)
        gap = None if self._ended_seconds is None else self._started_seconds - self._ended_seconds
        self._ended_seconds = self._started_seconds + self._duration_seconds if state.requests else None
        preemptions = state.num_preemptions - self._previous_preemptions
        self._previous_preemptions = state.num_preemptions
        faults, decision_seconds = panel.drain_counters()
        cost = state.cost_model
        all_flops, all_seconds = cost.flops(self._load), cost.seconds(self._load)
        owned = state.num_blocks - state.num_free_blocks
        return IterationStats(
            iteration=state.iteration,
            duration_seconds=self._duration_seconds,
            idle_gap_seconds=gap,
            prefill_tokens=self._prompts.rows,
            decode_tokens=self._decodes.rows,
            idle_rows=batch.idle_rows,
            prefill_compute_share=cost.flops(self._prompts) / all_flops if all_flops else 0.0,
            prefill_time_share=cost.prefill_seconds(self._load, self._decodes) / all_seconds if all_seconds else 0.0,
            sequences_running=len(state.running),
            sequences_waiting=state.num_waiting,
            waiting_tokens=state.num_waiting_tokens,
            blocks_total=state.num_blocks,
            blocks_free=state.num_free_blocks,
            blocks_cached_idle=state.num_cached_idle_blocks,
            waste_tokens=owned * state.block_size - sum(s.num_computed_tokens for s in state.running),
            starts=len(started),
            held=dict(Counter(deciding.held.values())),
            longest_wait_iterations=state.waiting_queues.longest_waits(state.iteration),
            served_tokens=self._served,
            preemptions=preemptions,
            memory_shortages=state.shortages,
            rescues=self._new_rescues(),
            policy_faults=faults,
            decision_seconds=decision_seconds,
            attainment=self._attainment.drain_counts(),
            cost_model_error=cost.error,
        )

    def _new_rescues(self) -> dict[str, int]:
        rescues = self._state.rescues
        if rescues == self._previous_rescues:
            return {}
        new = rescues - self._previous_rescues
        self._previous_rescues = rescues.copy()
        return dict(new)

    def info(self, config: EngineConfig) -> EngineInfo:
        """What the engine serves and within which limits."""
        state, spec = self._state, self._state.spec
        return EngineInfo(
            model=spec.name,
            architecture=spec.architecture,
            dtype=spec.dtype,
            device=spec.device,
            vocab_size=spec.vocab_size,
            max_model_len=min(spec.max_model_len, state.num_blocks * state.block_size),
            block_size=spec.block_size,
            num_blocks=spec.num_blocks,
            kv_bytes_per_token=spec.kv_bytes_per_token,
            eos_token_ids=spec.eos_token_ids,
            kind=spec.kind,
            embedding_size=spec.embedding_size,
            matryoshka_sizes=spec.matryoshka_sizes,
            policies=self._panel.set.names(),
            policy_version=self._panel.version,
            config=config,
        )

    def _record(
        self, batch: Batch, started: list[Sequence], deciding: Deciding, commit: Commit, delivered: bool
    ) -> IterationRecord:
        state = self._state
        return IterationRecord(
            iteration=state.iteration,
            started_seconds=self._started_seconds,
            duration_seconds=self._duration_seconds,
            policy_version=self._panel.version,
            rows=self._rows,
            prefill_tokens=self._prompts.rows,
            decode_tokens=self._decodes.rows,
            idle_rows=batch.idle_rows,
            started=tuple(s.id for s in started),
            preempted=state.preempted,
            finished=commit.finished,
            held=dict(Counter(deciding.held.values())),
            shortages=dict(state.shortages),
            num_running=len(state.running),
            num_waiting=state.num_waiting,
            num_free_blocks=state.num_free_blocks,
            delivered=delivered,
        )


def _decodes(sequence: Sequence) -> bool:
    return sequence.num_tokens - sequence.num_computed_tokens == 1 and sequence.num_computed_tokens > 0


def _row(sequence: Sequence, num_tokens: int) -> RecordedRow:
    computed = sequence.num_computed_tokens
    return RecordedRow(
        sequence_id=sequence.id,
        request_id=sequence.request_id,
        sample_index=sequence.sample_index,
        tenant=sequence.tenant,
        class_name=sequence.class_name,
        num_computed_tokens=computed,
        num_tokens=num_tokens,
        num_new_tokens=_num_new_tokens(sequence, num_tokens),
        is_decode=_decodes(sequence),
    )


def _num_new_tokens(sequence: Sequence, num_tokens: int) -> int:
    """Of the tokens about to be computed, those that never were; the one of a decode never was."""
    computed = sequence.num_computed_tokens
    return max(0, computed + num_tokens - max(computed, sequence.max_computed_tokens))
