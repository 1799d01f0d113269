"""GrammarChecker: the gateway's side, which finds out in a process of its own whether a grammar can be followed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import sys
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from core_engine.errors import EngineUnavailable, InvalidRequest, Overloaded
from core_engine.grammars.framing import LENGTH_BYTES, framed, length_of
from core_engine.grammars.grammar import Grammar
from core_engine.grammars.source import invalid_grammar, source_of
from core_engine.grammars.vocabulary import Vocabulary
from core_engine.service.incarnation import child_environment

if TYPE_CHECKING:
    from core_engine.text import TextModel

_PROGRAM = "core_engine.grammars.check"
_MAX_VERDICTS = 4096
_TOO_MUCH = str(invalid_grammar("it takes more time, memory or depth than a grammar may"))
# Its limit of time, too deep a recursion, no more memory.
_ENDED_BY_GRAMMAR = (-signal.SIGXCPU, -signal.SIGSEGV, -signal.SIGABRT)
_FAREWELL_SECONDS = 1.0
_PATIENCE_SECONDS = 30.0  # a guard against a process that hangs without computing


class GrammarChecker:
    """Asks a process, started when it is first needed, and again when a grammar has ended it.

    Belongs to one event loop. Verdicts are remembered; at most `max_waiting` grammars wait for theirs.
    """

    def __init__(self, text_model: TextModel, *, max_waiting: int = 64) -> None:
        self._text_model = text_model
        self._max_waiting = max_waiting
        self._verdicts: OrderedDict[bytes, str] = OrderedDict()  # by digest; empty where it can be followed
        self._checks: dict[bytes, asyncio.Task[str]] = {}
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._vocabulary: bytes | None = None

    async def check(self, grammar: Grammar) -> None:
        """Return where every output can be guaranteed.

        Raises InvalidRequest where it can't be, or not within the limits of time, memory and size;
        Overloaded where too many wait. A caller that is cancelled leaves others undisturbed.
        """
        source_of(grammar)  # refuses what is too long before it is hashed, sent and decoded
        digest = hashlib.blake2b(msgspec.msgpack.encode(grammar), digest_size=16).digest()
        verdict = self._verdicts.get(digest)
        if verdict is None:
            verdict = await asyncio.shield(self._check(digest, grammar))
        else:
            self._verdicts.move_to_end(digest)
        if verdict:
            raise InvalidRequest(verdict, "invalid_grammar")

    async def close(self) -> None:
        """End the process."""
        for check in self._checks.values():
            check.cancel()
        await self._end()

    def _check(self, digest: bytes, grammar: Grammar) -> asyncio.Task[str]:
        check = self._checks.get(digest)
        if check is None:
            if len(self._checks) >= self._max_waiting:
                message = f"{len(self._checks)} grammars wait to be compiled, which is the limit"
                raise Overloaded(message, "grammar_queue_full", retry_after_seconds=1.0)
            check = self._checks[digest] = asyncio.ensure_future(self._judge(digest, grammar))
            check.add_done_callback(lambda _: self._checks.pop(digest, None))
        return check

    async def _judge(self, digest: bytes, grammar: Grammar) -> str:
        async with self._turn:
            verdict = await self._ask(grammar)
            if verdict is None:  # the process has ended for a reason that may be another
                verdict = await self._ask(grammar)
        if verdict is None:
            verdict = _TOO_MUCH
        self._verdicts[digest] = verdict
        if len(self._verdicts) > _MAX_VERDICTS:
            self._verdicts.popitem(last=False)
        return verdict

    async def _ask(self, grammar: Grammar) -> str | None:
        """The verdict; None where the process ends before it, and not for what the grammar did to it."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await self._exchange(grammar)
        except (OSError, asyncio.IncompleteReadError):  # a timeout is an OSError too
            return _TOO_MUCH if await self._end() in _ENDED_BY_GRAMMAR else None
        except BaseException:
            await self._end()  # the next question must not get the answer to this one
            raise

    async def _exchange(self, grammar: Grammar) -> str:
        process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        await _send(process.stdin, msgspec.msgpack.encode(grammar))
        length = length_of(await process.stdout.readexactly(LENGTH_BYTES))
        return msgspec.msgpack.decode(await process.stdout.readexactly(length), type=str)

    async def _start(self) -> asyncio.subprocess.Process:
        """A process that knows the vocabulary; raises EngineUnavailable where there can't be one."""
        if self._vocabulary is None:
            self._vocabulary = await asyncio.to_thread(self._encoded_vocabulary)
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", _PROGRAM, str(os.getpid())),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=child_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise EngineUnavailable("no process can be started to compile a grammar in") from error
        assert process.stdin is not None
        await _send(process.stdin, self._vocabulary)
        return process

    def _encoded_vocabulary(self) -> bytes:
        text_model = self._text_model
        return msgspec.msgpack.encode(Vocabulary.of(text_model, text_model.vocab_size, text_model.eos_token_ids))

    async def _end(self) -> int | None:
        """End the process, which does so by itself when nobody writes to it; returns how, None for by force."""
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_FAREWELL_SECONDS):
                return await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            return None


async def _send(stream: asyncio.StreamWriter, message: bytes) -> None:
    stream.write(framed(message))
    await stream.drain()
