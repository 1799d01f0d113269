"""The process that compiles grammars of clients first, and may die of it. Run by GrammarChecker, not by hand.

Messages are MessagePack: in comes the Vocabulary, then one Grammar after the other; out go verdicts, empty for a
grammar that can be followed.
"""

from __future__ import annotations

import resource
import sys
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from core_engine.errors import InvalidRequest
from core_engine.grammars.compiler import compile_grammar
from core_engine.grammars.framing import LENGTH_BYTES, framed, length_of
from core_engine.grammars.grammar import Grammar
from core_engine.grammars.vocabulary import Vocabulary
from core_engine.service.lifeline import end_with_parent

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_MAX_SECONDS = 2  # of computing, so that a busy machine refuses nobody
_MAX_MEMORY_BYTES = 1 << 30  # for one grammar
_STACK_BYTES = 2 << 20  # a quarter of what threads have elsewhere: what fits here fits there


def main() -> None:
    """Answer until there is nothing more to read."""
    end_with_parent(int(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.stack_size(_STACK_BYTES)
    worker = threading.Thread(target=_answer_all, args=(sys.stdin.buffer, sys.stdout.buffer))
    worker.start()
    worker.join()


class _Compiler:
    def __init__(self, requests: BinaryIO) -> None:
        self._vocabulary = _read(requests)

    @cached_property
    def tokenizer(self) -> LLTokenizer:
        assert self._vocabulary is not None
        return msgspec.msgpack.decode(self._vocabulary, type=Vocabulary).prepare()


def _answer_all(requests: BinaryIO, verdicts: BinaryIO) -> None:
    compiler = _Compiler(requests)
    while (message := _read(requests)) is not None:
        _limit_time()
        _limit_memory()
        verdict = ""
        try:
            compile_grammar(compiler.tokenizer, msgspec.msgpack.decode(message, type=Grammar))
        except InvalidRequest as error:
            verdict = str(error)
        verdicts.write(framed(msgspec.msgpack.encode(verdict)))
        verdicts.flush()


def _read(stream: BinaryIO) -> bytes | None:
    prefix = stream.read(LENGTH_BYTES)
    return stream.read(length_of(prefix)) if len(prefix) == LENGTH_BYTES else None


def _limit_time() -> None:
    """Have the kernel end this process once it has computed for so long from now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + _MAX_SECONDS + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, hard))


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + _MAX_MEMORY_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


if __name__ == "__main__":
    main()
