"""An engine's client without an engine: it says what the test tells it to, token by token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from core_engine import (
    Answer,
    EngineConfig,
    EngineInfo,
    EngineUnavailable,
    FirstTokenTiming,
    FromEngine,
    Outcome,
    PromptLogprobs,
    Request,
    SequenceOutput,
    TokenLogprobs,
)

MODEL = "tiny"


def engine_info(vocab_size: int, eos_token_ids: tuple[int, ...], max_model_len: int = 2048) -> EngineInfo:
    return EngineInfo(
        model=MODEL,
        architecture="LlamaForCausalLM",
        dtype="float32",
        device="cpu",
        vocab_size=vocab_size,
        max_model_len=max_model_len,
        block_size=16,
        num_blocks=256,
        kv_bytes_per_token=128,
        eos_token_ids=eos_token_ids,
        config=EngineConfig(),
    )


@dataclass
class Script:
    """What happens to requests from now on."""

    tokens: Callable[[Request, int], list[int]]  # of one sample, the end-of-sequence token included if it comes to that
    refusal: Exception | None = None  # instead of accepting
    failure: Exception | None = None  # raised by tickets ...
    failure_after: int = 0  # ... once they have given that many tokens
    error: str | None = None  # of the last output of every sequence, instead of an ordinary end
    hold_acceptance: bool = False
    hold_after: int | None = None  # tokens after which nothing comes any more
    together: int = 1  # tokens that come at once
    prompt_tokens_together: int = 3  # of which log-probabilities come at once
    pause_seconds: float = 0.0  # before anything comes
    limits: dict[str, str] = field(default_factory=dict)
    cached_tokens: int = 0
    timing: FirstTokenTiming | None = None  # of every first token


class FakeTicket:
    def __init__(self, client: FakeEngineClient, request: Request, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.limits = client.script.limits
        self.outcome: Outcome | None = None
        self._client = client
        self._script = client.script
        self._request = request
        self._position = 0
        self._num_told = 1  # of the prompt's tokens; the first has no log-probability
        self._tokens = [self._script.tokens(request, index) for index in range(request.n)]
        self._take: Callable[[SequenceOutput], bool] = lambda output: False

    def divert(self, take: Callable[[SequenceOutput], bool]) -> None:
        self._take = take

    async def next(self) -> list[SequenceOutput]:
        while not (outputs := [output for output in await self._next() if not self._take(output)]):
            pass
        return outputs

    async def _next(self) -> list[SequenceOutput]:
        script = self._script
        await asyncio.sleep(script.pause_seconds)
        if script.failure is not None and self._position >= script.failure_after:
            raise script.failure
        if script.hold_after is not None and self._position >= script.hold_after:
            await asyncio.Event().wait()
        if self._request.sampling.prompt_logprobs is not None and self._num_told < len(self._request.prompt_token_ids):
            return [self._tell(script.prompt_tokens_together)]
        start, end = self._position, self._position + script.together
        self._position = end
        outputs = [output for index in range(self._request.n) if (output := self._output(index, start, end))]
        if all(end >= min(len(tokens), self.max_tokens) for tokens in self._tokens):
            self.outcome = Outcome(
                request_id=self._request.id,
                finish_reason="stop",
                num_prompt_tokens=len(self._request.prompt_token_ids),
                num_output_tokens=sum(min(len(tokens), self.max_tokens) for tokens in self._tokens),
                num_cached_tokens=script.cached_tokens,
            )
            self._client.running.discard(self._request.id)
        return outputs

    def _output(self, index: int, start: int, end: int) -> SequenceOutput | None:
        tokens = self._tokens[index][: self.max_tokens]
        new = tokens[start:end]
        if not new and self.max_tokens:
            return None
        last = end >= len(tokens)
        stopped = last and bool(new) and new[-1] in self._client.info.eos_token_ids
        top = self._request.sampling.logprobs
        return SequenceOutput(
            request_id=self._request.id,
            sample_index=index,
            token_ids=new,
            logprobs=None if top is None else [self._logprobs(token, index, top) for token in new],
            finish_reason=None if not last else "error" if self._script.error else "stop" if stopped else "length",
            stop_token_id=new[-1] if stopped else None,
            error=self._script.error if last else None,
            num_cached_tokens=self._script.cached_tokens,
            timing=self._script.timing if start == 0 else None,
        )

    def _tell(self, count: int) -> SequenceOutput:
        """A prompt token's log-probability is its id, negative; rivals are the ids that follow."""
        first, self._num_told = self._num_told, self._num_told + count
        tokens = self._request.prompt_token_ids[first : self._num_told]
        rivals = self._request.sampling.prompt_logprobs or 0
        told = [(-float(token), 2, [(token + i, -float(i)) for i in range(1, rivals + 1)]) for token in tokens]
        return SequenceOutput(self._request.id, 0, [], prompt_logprobs=[PromptLogprobs.pack(first, told)])

    def _logprobs(self, token: int, index: int, top: int) -> TokenLogprobs:
        """The sample with the highest number is the most probable one."""
        best = -1.0 / (index + 1)
        rivals = [(token, best), *((5 + rival, best - rival) for rival in range(1, top))]
        return TokenLogprobs(best, rivals[:top])

    def cancel(self) -> None:
        if self._request.id in self._client.running:
            self._client.cancelled.append(self._request.id)
            self._client.running.discard(self._request.id)


class FakeEngineClient:
    """The signatures of EngineClient; everything that was asked of it is on record."""

    def __init__(self, info: EngineInfo, script: Script) -> None:
        self.state = "ready"
        self.failure: str | None = None
        self.engine_pid: int | None = None
        self.info = info
        self.listeners: list[Callable[[FromEngine], None]] = []
        self.script = script
        self.submitted: list[Request] = []
        self.cancelled: list[str] = []
        self.running: set[str] = set()
        self.before_submission: Callable[[Request], None] | None = None

    async def ask(self, question: object) -> Answer:
        raise EngineUnavailable("it has no policies to tell of")

    async def stop(self) -> None:
        pass

    async def submit(self, request: Request) -> FakeTicket:
        if self.before_submission is not None:
            self.before_submission(request)
        self.submitted.append(request)
        if self.script.refusal is not None:
            raise self.script.refusal
        if self.script.hold_acceptance:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(request.id)
                raise
        self.running.add(request.id)
        room = self.info.max_model_len - len(request.prompt_token_ids)
        wanted = request.sampling.max_tokens
        return FakeTicket(self, request, room if wanted is None else min(wanted, room))
