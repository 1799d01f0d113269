"""Intake: what comes in between two iterations. Submissions are admitted or refused, cancellations done."""

from __future__ import annotations

import hashlib
from collections import deque

from core_engine import answers
from core_engine.compiling import Compiling
from core_engine.errors import InvalidRequest
from core_engine.grammars.matcher import CompiledGrammar
from core_engine.kv import chain_block_hashes
from core_engine.messages import Accepted, Rejected
from core_engine.panel import Panel
from core_engine.plan import Reject
from core_engine.request import Request, Sequence
from core_engine.state import EngineState, RequestState


class Intake:
    """The inbox of an engine, and the way from a Request to waiting Sequences."""

    def __init__(self, state: EngineState, panel: Panel, seed: int, compiling: Compiling) -> None:
        self._state = state
        self._panel = panel
        self._seed = seed
        self._compiling = compiling
        self._next_id = 0
        self._submissions: deque[Request] = deque()
        self._cancellations: deque[str] = deque()

    def __bool__(self) -> bool:
        return bool(self._submissions or self._cancellations or self._compiling)

    def submit(self, request: Request) -> None:
        """Put a request into the inbox."""
        self._submissions.append(request)

    def cancel(self, request_id: str) -> None:
        """Put a cancellation into the inbox, where it overtakes nothing."""
        self._cancellations.append(request_id)

    def take_cancelled(self) -> list[RequestState]:
        """The requests to cancel now; one that is still in the inbox simply never enters."""
        found = []
        while self._cancellations:
            request_id = self._cancellations.popleft()
            if (state := self._state.requests.get(request_id)) is not None:
                found.append(state)
            else:
                self._submissions = deque(r for r in self._submissions if r.id != request_id)
                self._compiling.drop(request_id)
        return found

    def admit_all(self) -> tuple[list[Accepted], list[tuple[Request, Rejected]]]:
        """Decide on everything submitted since the last iteration, or whose grammar has become ready since."""
        accepted: list[Accepted] = []
        rejected: list[tuple[Request, Rejected]] = []
        for request, grammar in self._take_submitted():
            verdict = self._decide(request, grammar)
            if isinstance(verdict, Accepted):
                accepted.append(verdict)
            else:
                rejected.append((request, verdict))
        return accepted, rejected

    def _take_submitted(self) -> list[tuple[Request, CompiledGrammar | InvalidRequest | None]]:
        submitted: list[tuple[Request, CompiledGrammar | InvalidRequest | None]] = []
        while self._submissions:
            request = self._submissions.popleft()
            if request.sampling.grammar is None:
                submitted.append((request, None))
            else:
                self._compiling.add(request)
        return [*submitted, *self._compiling.take_ready()]

    def _decide(self, request: Request, grammar: CompiledGrammar | InvalidRequest | None) -> Accepted | Rejected:
        try:
            max_tokens = self._fit(request)
            if isinstance(grammar, InvalidRequest):
                raise grammar
        except InvalidRequest as error:
            return Rejected(request.id, error.code, str(error))
        limits: dict[str, str] = {}
        rejection: Reject | None = None
        for _, answer in self._panel.ask_all("admit_request", answers.admission, request, self._state):
            limits.update(answer.limits)
            if isinstance(answer, Reject) and rejection is None:
                rejection = answer
        if rejection is not None:
            message = rejection.message or f"refused for now: {rejection.reason}"
            return Rejected(request.id, rejection.reason, message, float(rejection.retry_after_seconds), limits)
        self._enter(request, max_tokens, grammar)
        return Accepted(request.id, max_tokens, limits)

    def _fit(self, request: Request) -> int:
        """The engine's own rule: max_tokens as it holds here; raises InvalidRequest for what can never run."""
        state, spec, prompt = self._state, self._state.spec, request.prompt_token_ids
        if request.model != spec.name:
            raise InvalidRequest(f"the model {request.model!r} is not served here", "model_not_found", "model")
        if request.kind != spec.kind:
            raise InvalidRequest(
                f"the model {spec.name!r} does not serve {request.kind!r}", "unsupported_kind", "model"
            )
        if request.id in state.requests:
            raise InvalidRequest(f"a request {request.id!r} is running already", "duplicate_request_id", "id")
        if not prompt:
            raise InvalidRequest("the prompt has no token", "empty_prompt", "prompt")
        if min(prompt) < 0 or max(prompt) >= spec.vocab_size:
            raise InvalidRequest(
                f"the prompt has a token id outside 0 to {spec.vocab_size - 1}", "invalid_token_id", "prompt"
            )
        if request.kind == "embed":
            return self._fit_input(request)
        wanted = request.sampling.max_tokens
        least = 0 if wanted == 0 else 1
        room = min(spec.max_model_len, state.num_blocks * state.block_size) - len(prompt)
        if room < least:
            raise InvalidRequest(
                f"the prompt has {len(prompt)} tokens; with at least {least} tokens of output at most "
                f"{room + len(prompt)} fit",
                "context_length_exceeded",
                "prompt",
            )
        longest = spec.max_lone_prompt_tokens
        if longest is not None and longest < len(prompt) > state.token_limit and self._runs_whole_prompts():
            raise InvalidRequest(
                f"the prompt has {len(prompt)} tokens; the policy runs prompts whole, and at most "
                f"{max(longest, state.token_limit)} fit into memory at once",
                "context_length_exceeded",
                "prompt",
            )
        if wanted is None:
            wanted = state.config.default_max_tokens or room
        return max(least, min(wanted, room))

    def _fit_input(self, request: Request) -> int:
        """The same for a text to embed: it needs no room for output, but a single iteration for all of it."""
        longest = min(self._state.spec.max_model_len, (self._state.num_blocks - 1) * self._state.block_size)
        if len(request.prompt_token_ids) > longest:
            raise InvalidRequest(
                f"the input has {len(request.prompt_token_ids)} tokens; at most {longest} fit",
                "context_length_exceeded",
                "input",
            )
        if request.n != 1:
            raise InvalidRequest("a text has one embedding: n must be 1", "invalid_n", "n")
        return 1

    def _runs_whole_prompts(self) -> bool:
        planner = self._panel.first("plan_iteration")
        return planner is not None and bool(getattr(planner.instance, "whole_prompts", False))

    def _enter(self, request: Request, max_tokens: int, grammar: CompiledGrammar | None) -> None:
        state = self._state
        most = max(1, max_tokens)
        predicted = self._panel.ask_one(
            "predict_output_tokens", answers.clamped(1, most), request, state
        ) or state.predictor.predict(request.tenant, len(request.prompt_token_ids), most)
        hashes: tuple[bytes, ...] = ()
        if state.pool.remembers and request.kind == "generate":  # an embedding leaves nothing to find again
            salt = f"{len(request.tenant)}:{request.tenant}{request.cache_salt}"
            hashes = chain_block_hashes(request.prompt_token_ids, state.block_size, salt)
        sequences = [
            Sequence(
                self._next_id + index,
                request,
                index,
                max_tokens=max_tokens,
                seed=self._sampling_seed(request),
                arrival_seconds=state.clock.now(),
                arrival_iteration=state.iteration,
                predicted_output_tokens=predicted,
                block_hashes=hashes,
                matcher=grammar.matcher() if grammar is not None else None,
            )
            for index in range(request.n)
        ]
        self._next_id += request.n
        state.requests[request.id] = RequestState(request, sequences)
        for sequence in sequences:
            state.waiting_queues.add(sequence, state.iteration)

    def _sampling_seed(self, request: Request) -> int:
        """The client's seed, else one that follows from the engine's seed and the order of arrival."""
        if request.sampling.seed is not None:
            return request.sampling.seed
        digest = hashlib.blake2b(f"{self._seed}/{self._next_id}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1
