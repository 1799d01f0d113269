from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core_engine.errors import ConfigurationError
from core_engine.lab.journal import DroppedLine, IterationLine, Journal, Line, RequestLine
from plugins.record import Record, RecordOptions
from tests.plugins.runs import Run, make_request


def read(path: Path) -> list[Any]:
    return [msgspec.json.decode(line, type=Line) for line in path.read_bytes().splitlines()]


def recorded(path: Path, *policies: str, seed: int = 0, **options: Any) -> list[Any]:
    """The record of a run with three tenants and too little memory."""
    policy = Record(RecordOptions(path=str(path), **options), seed)
    run = Run(policy, *policies, "paged:headroom=0", num_blocks=8, block_size=16, sequence_limit=4)
    for i in range(9):
        name, tenant = f"r{i}", f"tenant-{i % 3}"
        run.submit(make_request(name, 20 + i, 30, tenant=tenant, class_name="batch", priority=3, like=f"p{i % 4}"))
        run.step(3)
    run.finish(make_request("refused", 5000, 5))
    policy.journal.close()
    return read(path)


def test_a_line_for_each_request_and_each_iteration(tmp_path: Path) -> None:
    lines = recorded(tmp_path / "record.jsonl")
    requests = [line for line in lines if isinstance(line, RequestLine)]
    iterations = [line for line in lines if isinstance(line, IterationLine)]
    assert len(lines) == len(requests) + len(iterations)
    assert [line.iteration for line in iterations] == list(range(1, len(iterations) + 1))
    assert sorted(line.request_id for line in requests) == sorted([*(f"r{i}" for i in range(9)), "refused"])
    by_id = {line.request_id: line for line in requests}
    first = by_id["r0"]
    assert (first.arrival_seconds, first.num_prompt_tokens, first.num_output_tokens) == (0.0, 20, 30)
    assert (first.class_name, first.priority, first.max_tokens, first.finish_reason) == ("batch", 3, 30, "length")
    assert by_id["refused"].finish_reason == "rejected"
    assert by_id["refused"].reason == "context_length_exceeded"
    assert any(line.preempted for line in iterations)
    assert any(line.held for line in iterations)
    assert any(line.shortages for line in iterations)
    assert sum(tokens for line in iterations for _, _, tokens in line.rows) > 9 * 50
    starts = [(name, sample) for line in iterations for _, name, sample in line.started]
    assert {name for name, _ in starts} == {f"r{i}" for i in range(9)}


def test_the_same_run_gives_the_same_record(tmp_path: Path) -> None:
    for name in ("one", "two"):
        recorded(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_no_prompt_no_text_and_no_tenant_is_in_it(tmp_path: Path) -> None:
    lines = recorded(tmp_path / "record.jsonl", "prefix_cache")
    assert b"tenant-" not in (tmp_path / "record.jsonl").read_bytes()
    fields = {name for line in lines for name in msgspec.to_builtins(line)}
    assert not {name for name in fields if "token_ids" in name or "text" in name or "prompt" in name} - {
        "num_prompt_tokens"
    }


def test_pseudonyms_tell_tenants_apart_and_change_with_seed_and_salt(tmp_path: Path) -> None:
    def tenants(name: str, **options: Any) -> dict[str, str]:
        lines = recorded(tmp_path / name, **options)
        return {line.request_id: line.tenant for line in lines if isinstance(line, RequestLine)}

    plain = tenants("plain")
    assert plain["r0"] == plain["r3"] != plain["r1"]
    assert not set(plain.values()) & set(tenants("seed", seed=1).values())
    assert not set(plain.values()) & set(tenants("salt", salt="s").values())


def test_prompts_that_begin_alike_can_be_told_by_salted_hashes(tmp_path: Path) -> None:
    lines = recorded(tmp_path / "record.jsonl", "prefix_cache")
    hashes = {line.request_id: line.block_hashes for line in lines if isinstance(line, RequestLine)}
    assert len(hashes["r0"]) == 1
    assert hashes["r0"] != hashes["r1"]
    salted = recorded(tmp_path / "salted", "prefix_cache", salt="s")
    others = {line.request_id: line.block_hashes for line in salted if isinstance(line, RequestLine)}
    assert others["r0"] != hashes["r0"]


def iteration(number: int) -> IterationLine:
    return IterationLine(
        iteration=number, started_seconds=0, duration_seconds=1, policy_version=1, rows=[], prefill_tokens=0,
        decode_tokens=0, idle_rows=0, started=[], preempted={}, finished={}, held={}, shortages={}, num_running=0,
        num_waiting=0, num_free_blocks=0, delivered=True,
    )  # fmt: skip


def test_a_full_file_makes_room_for_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    journal = Journal(path, max_bytes=2000, max_files=3, max_lines=1000)
    for number in range(60):
        journal.write(iteration(number))
    journal.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["record.jsonl", "record.jsonl.1", "record.jsonl.2"]
    assert all(file.stat().st_size <= 2000 for file in tmp_path.iterdir())
    kept = [line.iteration for suffix in (".2", ".1", "") for line in read(Path(f"{path}{suffix}"))]
    assert kept == list(range(kept[0], 60))


def test_a_file_that_is_there_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    for number in range(2):
        journal = Journal(path, max_bytes=2000, max_files=1, max_lines=10)
        journal.write(iteration(number))
        journal.close()
        journal.write(iteration(number + 10))  # after a close it opens again
        journal.close()
    assert [line.iteration for line in read(path)] == [0, 10, 1, 11]


def test_lines_that_come_too_fast_are_dropped_and_counted(tmp_path: Path) -> None:
    class Stuck(Journal):
        """A journal whose disk is slow."""

        def __init__(self, path: Path) -> None:
            super().__init__(path, max_bytes=1 << 20, max_files=1, max_lines=2)
            self.writing, self.go_on = threading.Event(), threading.Event()

        def _append(self, file: Any, line: bytes) -> Any:
            self.writing.set()
            assert self.go_on.wait(30)
            return super()._append(file, line)

    journal = Stuck(tmp_path / "record.jsonl")
    journal.write(iteration(0))
    assert journal.writing.wait(30)
    for number in range(1, 6):
        journal.write(iteration(number))  # two are taken, three dropped
    assert journal.dropped_lines == 3
    journal.go_on.set()
    journal.close()
    journal.write(iteration(6))
    journal.close()
    lines = read(tmp_path / "record.jsonl")
    assert [line.iteration for line in lines if isinstance(line, IterationLine)] == [0, 1, 2, 6]
    assert [line.lines for line in lines if isinstance(line, DroppedLine)] == [3]


def test_a_disk_that_fails_costs_lines_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "record.jsonl"
    path.mkdir()
    journal = Journal(path, max_bytes=2000, max_files=1, max_lines=10)
    journal.write(iteration(0))
    journal.close()
    assert journal.dropped_lines == 1
    assert "can't be written" in caplog.text
    path.rmdir()
    journal.write(iteration(1))
    journal.close()
    assert [type(line) for line in read(path)] == [DroppedLine, IterationLine]


def test_nothing_is_opened_before_the_first_line(tmp_path: Path) -> None:
    Record(RecordOptions(path=str(tmp_path / "record.jsonl")), 0).journal.close()
    assert not list(tmp_path.iterdir())


def test_a_directory_that_does_not_exist_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"record.*directory that does not exist"):
        Run(f"record:path={tmp_path}/nowhere/record.jsonl")


def test_it_is_written_out_when_the_policy_retires(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    run = Run(f"record:path={path}")
    run.submit(make_request("a", 10, 20))
    run.step(3)
    run.engine.adopt_policies(run.engine.build_policies(()))
    assert [line.iteration for line in read(path)] == [1, 2, 3]
