"""The server's own record: what came, what was decided, how long it took; never what it was about."""

from __future__ import annotations

import hashlib
import weakref
from pathlib import Path
from typing import Annotated

import msgspec

from core_engine.hookspecs import hookimpl
from core_engine.lab.journal import IterationLine, Journal, RequestLine
from core_engine.messages import Outcome
from core_engine.plan import IterationRecord
from core_engine.request import Request
from core_engine.view import EngineView


class RecordOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`path` of the newest file; `max_bytes` of a file, 4,096 up; `max_files`, 1 up; `max_lines` on their way, 1 up."""

    path: str = "jitney-record.jsonl"
    max_bytes: Annotated[int, msgspec.Meta(ge=4096)] = 64 * 1024 * 1024
    max_files: Annotated[int, msgspec.Meta(ge=1)] = 8
    max_lines: Annotated[int, msgspec.Meta(ge=1)] = 65_536
    salt: str = ""


class Record:
    """Records every request and every iteration, a line of JSON each, without a word of what was said.

    Lines are those of `core_engine.lab.journal`: arrivals, lengths, classes, outcomes; who ran, who started, who was
    held or preempted and why, durations, policy version. They go to `path` (jitney-record.jsonl) on a thread of its
    own; of `max_files` (8) files of `max_bytes` (64 MiB) the oldest goes when one is full; beyond `max_lines`
    (65,536) lines on their way to the disk new ones are dropped, counted and told of in the file. Tenants and block
    hashes are hashed with the engine's seed and `salt`, so that equal ones can be told and none guessed. Source:
    our own. Guarantees that no prompt, text or tenant's name is written, that the engine never waits for the disk,
    and, while none is dropped, the same lines for the same run in virtual time.
    """

    Options = RecordOptions
    hookspec_range = (1, 1)

    def __init__(self, options: RecordOptions, seed: int) -> None:
        path = Path(options.path)
        if not path.parent.is_dir():
            raise ValueError(f"path {options.path!r} lies in a directory that does not exist")
        self.journal = Journal(
            path, max_bytes=options.max_bytes, max_files=options.max_files, max_lines=options.max_lines
        )
        self._key = hashlib.blake2b(f"{seed}/{options.salt}".encode(), digest_size=32).digest()
        weakref.finalize(self, self.journal.close)

    @hookimpl
    def on_request_finished(self, request: Request, outcome: Outcome, view: EngineView) -> None:
        """One line for the request."""
        self.journal.write(
            RequestLine(
                request_id=request.id,
                arrival_seconds=view.now - outcome.total_seconds,
                tenant=self._pseudonym(request.tenant.encode()),
                class_name=request.class_name,
                priority=request.priority,
                weight=request.weight,
                kind=request.kind,
                n=request.n,
                max_tokens=request.sampling.max_tokens,
                num_prompt_tokens=outcome.num_prompt_tokens,
                num_output_tokens=outcome.num_output_tokens,
                num_cached_tokens=outcome.num_cached_tokens,
                num_preemptions=outcome.num_preemptions,
                finish_reason=outcome.finish_reason,
                reason=outcome.reason,
                queue_seconds=outcome.queue_seconds,
                prefill_seconds=outcome.prefill_seconds,
                decode_seconds=outcome.decode_seconds,
                total_seconds=outcome.total_seconds,
                block_hashes=[self._pseudonym(block) for block in outcome.block_hashes],
            )
        )

    @hookimpl
    def on_iteration_end(self, record: IterationRecord) -> None:
        """One line for the iteration."""
        started = set(record.started)
        self.journal.write(
            IterationLine(
                iteration=record.iteration,
                started_seconds=record.started_seconds,
                duration_seconds=record.duration_seconds,
                policy_version=record.policy_version,
                rows=[(row.sequence_id, row.num_computed_tokens, row.num_tokens) for row in record.rows],
                prefill_tokens=record.prefill_tokens,
                decode_tokens=record.decode_tokens,
                idle_rows=record.idle_rows,
                started=[
                    (r.sequence_id, r.request_id, r.sample_index) for r in record.rows if r.sequence_id in started
                ],
                preempted=record.preempted,
                finished=record.finished,
                held=record.held,
                shortages=record.shortages,
                num_running=record.num_running,
                num_waiting=record.num_waiting,
                num_free_blocks=record.num_free_blocks,
                delivered=record.delivered,
            )
        )

    @hookimpl
    def on_retire(self) -> None:
        """Write what is on its way."""
        self.journal.close()

    def _pseudonym(self, name: bytes) -> str:
        return hashlib.blake2b(name, key=self._key, digest_size=8).hexdigest()
