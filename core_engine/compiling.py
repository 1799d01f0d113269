"""Compiling: requests between inbox and admission whose grammar is not ready yet."""

from __future__ import annotations

import logging
from concurrent.futures import Future

from core_engine.errors import InvalidRequest
from core_engine.grammars.compiler import GrammarCompiler
from core_engine.grammars.matcher import CompiledGrammar
from core_engine.request import Request

_log = logging.getLogger("jitney.engine")


class Compiling:
    """Holds them back, and nobody else; without a compiler every grammar is refused."""

    def __init__(self, compiler: GrammarCompiler | None) -> None:
        self._compiler = compiler
        self._waiting: list[tuple[Request, Future[CompiledGrammar]]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, request: Request) -> None:
        """Take in a request with a grammar."""
        assert request.sampling.grammar is not None
        if self._compiler is None:
            refused: Future[CompiledGrammar] = Future()
            refused.set_exception(InvalidRequest("this engine follows no grammars", "grammars_unsupported"))
            self._waiting.append((request, refused))
        else:
            self._waiting.append((request, self._compiler.compile(request.sampling.grammar)))

    def drop(self, request_id: str) -> None:
        """Forget a request that nobody wants any more; what is compiled for it is kept for the next."""
        self._waiting = [(request, future) for request, future in self._waiting if request.id != request_id]

    def take_ready(self) -> list[tuple[Request, CompiledGrammar | InvalidRequest]]:
        """Those whose grammar is ready, or found to be impossible."""
        ready = [(request, _result(future)) for request, future in self._waiting if future.done()]
        if ready:
            self._waiting = [(request, future) for request, future in self._waiting if not future.done()]
        return ready


def _result(future: Future[CompiledGrammar]) -> CompiledGrammar | InvalidRequest:
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, InvalidRequest):
        return error
    _log.error("a grammar could not be compiled", exc_info=error)
    return InvalidRequest("The grammar could not be compiled.", "invalid_grammar")
