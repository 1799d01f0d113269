"""The same workloads in another process, where the order of sets of strings is another."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Sequence

import msgspec

from core_engine.errors import ConfigurationError
from core_engine.testkit.subject import subject
from core_engine.testkit.trial import Trial, run_trial
from core_engine.testkit.workloads import Workload

_SECONDS = 120


def digest(trial: Trial) -> int:
    """A number that two trials share where their records are equal."""
    return zlib.crc32(b"\n".join(trial.records))


def digests_elsewhere(spec: str, seed: int, workloads: Sequence[Workload]) -> list[int]:
    """The digests of these workloads, run by a new Python; raises ConfigurationError where that fails."""
    task = msgspec.json.encode(_Task(spec, seed, list(workloads), sys.path))
    code = f"from {__name__} import main; main()"
    done = subprocess.run(  # noqa: S603 -- a fixed command
        [sys.executable, "-R", "-c", code], input=task, capture_output=True, check=False, timeout=_SECONDS
    )
    if done.returncode != 0:
        raise ConfigurationError(f"policy {spec!r} does not run in another process: {done.stderr.decode()[-400:]}")
    return msgspec.json.decode(done.stdout, type=list[int])


def main() -> None:
    """The other process: reads its task and writes the digests."""
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=_Task)
    sys.path[:] = task.path
    tested = subject(task.spec)
    digests = [digest(run_trial(tested, workload, task.seed)) for workload in task.workloads]
    sys.stdout.buffer.write(msgspec.json.encode(digests))


class _Task(msgspec.Struct):
    spec: str
    seed: int
    workloads: list[Workload]
    path: list[str]
