"""Engine: one iteration as prose. Everything else is in the files that it names."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from core_engine.binding import Binding
from core_engine.clock import Clock, MonotonicClock
from core_engine.commit import Commit, Outbox
from core_engine.compiling import Compiling
from core_engine.config import EngineConfig
from core_engine.deciding import Deciding
from core_engine.defaults import default_policies
from core_engine.errors import EngineUnavailable
from core_engine.executor import Batch, BatchResult, Executor
from core_engine.grammars.compiler import GrammarCompiler
from core_engine.intake import Intake
from core_engine.kv import KVPool
from core_engine.messages import (
    Accepted,
    EngineInfo,
    IterationOutput,
    PolicyEvent,
    PolicyReport,
    Rejected,
    RequestReport,
)
from core_engine.objectives import Attainment
from core_engine.panel import Panel
from core_engine.policy_set import PolicySet
from core_engine.preempting import Preempting
from core_engine.questions import Questions
from core_engine.reporting import Reporting
from core_engine.request import Request, SamplingParams
from core_engine.selection import NamedPolicy, build_policies
from core_engine.setbacks import Setbacks
from core_engine.state import EngineState
from core_engine.swapping import Swapping

_log = logging.getLogger("jitney.engine")
_MAX_FAILED_EXECUTIONS = 3


class Engine:
    """Schedules at every iteration and batches selectively, as Orca (OSDI '22) does.

    One thread, no I/O: `submit` and `cancel` fill an inbox, `step` runs one iteration and returns
    everything it has to tell. Which sequence boards, rides on or gets off is for the policies to say.
    """

    def __init__(
        self,
        config: EngineConfig,
        executor: Executor,
        *,
        clock: Clock | None = None,
        policies: Sequence[NamedPolicy] | None = None,
        grammars: GrammarCompiler | None = None,
    ) -> None:
        """`policies` are ready-made ones, instead of those that `config.policies` names.

        Without `grammars` requests that ask for one are refused.

        Raises ConfigurationError for policies that don't exist, don't fit the hooks or have wrong options.
        """
        spec = executor.spec
        if spec.kind == "embed":  # a text is embedded in one iteration, so that the longest must fit in one
            config = msgspec.structs.replace(config, token_limit=max(config.token_limit, spec.max_model_len))
        self.config = config
        self.epoch = 0
        self._executor = executor
        self._clock = clock or MonotonicClock()
        seed = config.drawn_seed()
        chosen = build_policies(config.policies, seed) if policies is None else list(policies)
        self._panel = Panel(
            PolicySet(chosen, default_policies(seed)),
            self._clock,
            strict=config.strict,
            max_faults=config.max_policy_faults,
            window=config.fault_window_iterations,
        )
        allocator = self._panel.ask_one("create_block_allocator", _allocator, spec.num_blocks, spec.block_size)
        owner = self._panel.first("create_block_allocator")
        assert owner is not None, "a default answers every question"
        pool = KVPool(
            spec.num_blocks, spec.block_size, allocator, lambda reason: self._panel.fault(owner.policy, reason)
        )
        attainment = Attainment(config.objectives)
        self.state = EngineState(config, spec, self._clock, pool)
        self._outbox = Outbox()
        self._intake = Intake(self.state, self._panel, seed, Compiling(grammars))
        self._deciding = Deciding(self.state, self._panel)
        self._preempting = Preempting(self.state, self._panel, self._deciding)
        self._binding = Binding(self.state, self._deciding, self._preempting)
        self._commit = Commit(self.state, self._panel, self._outbox, attainment)
        self._reporting = Reporting(self.state, self._panel, attainment)
        self._setbacks = Setbacks(self.state)
        self._swapping = Swapping(self.state, self._panel, attainment, seed)
        self._questions = Questions(self.state, self._panel, self._deciding, self._swapping)
        self._release_held = False
        self._delivered_iteration = 0
        self._failed_executions = 0  # in a row

    @classmethod
    def load(cls, config: EngineConfig, *, clock: Clock | None = None) -> Engine:
        """An engine with the executor and model that the configuration names, ready to step.

        Raises ModelError or ConfigurationError.
        """
        from core_engine.loading import grammar_compiler, load_executor, prepare_model

        directory = prepare_model(config)
        executor = load_executor(config, directory)
        return cls(config, executor, clock=clock, grammars=grammar_compiler(directory, executor.spec))

    @property
    def info(self) -> EngineInfo:
        """What this engine serves and within which limits."""
        return self._reporting.info(self.config)

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything but wait."""
        return bool(self.state.requests or self._intake or self._outbox)

    def submit(self, request: Request) -> None:
        """Hand in a request; the next step says whether it was accepted."""
        self._intake.submit(request)

    def cancel(self, request_id: str) -> None:
        """Nobody wants this request any more; unknown ids are ignored."""
        self._intake.cancel(request_id)

    def build_policies(self, specs: tuple[str, ...]) -> PolicySet:
        """A set of policies beside the running one, for `adopt_policies`; may be called on any thread.

        What `specs` leave out returns to the defaults, but the block allocator, which stays. Raises
        ConfigurationError; RestartNeeded, its subclass, for a policy whose part is fixed at start.
        """
        return self._swapping.build(specs)

    def adopt_policies(self, policies: PolicySet) -> PolicyEvent:
        """Put them in force, between two iterations, on probation."""
        self._release_held = True
        return self._swapping.adopt(policies)

    def describe_policies(self) -> PolicyReport:
        """What is in force, the history of changes, and whether the newest is on probation."""
        return self._questions.policies()

    def describe_request(self, request_id: str) -> RequestReport | None:
        """Why a request is where it is; None for one that isn't here (any more)."""
        return self._questions.request(request_id)

    def step(self) -> IterationOutput:
        """Run one iteration: listen, decide, bind, execute, commit, tell."""
        self._begin()
        accepted, rejected = self._listen()  # submissions and cancellations
        order = self._deciding.rank()  # who goes first
        self._preempting.for_memory(order)  # who gives blocks back; before planning, so nothing is undone
        limit = self._deciding.limit_prefill()  # how much prompt work may join: the tightest gates
        self._preempting.for_rank(order, limit)  # who gives up a seat, only for a sequence that no gate holds
        plan = self._deciding.plan(order, limit)
        self._preempting.tell_clamped(self._deciding.clamped)
        self._setbacks.note(self._deciding.held)
        batch, started = self._binding.bind(plan)  # blocks for those tokens
        self._reporting.before(batch)
        self._execute(batch)
        self.state.watch_anchor(any_computed=bool(batch.sequences))
        if self.config.check_integrity or not self.state.requests:
            self.state.check_integrity()
        delivered = self._must_deliver(plan.deliver)
        outputs, finished = self._outbox.release() if delivered else ([], [])
        stats = self._reporting.after(batch, started, self._deciding, self._commit, delivered)
        version = self._panel.version
        self._release_held = self._swapping.watch()  # what it changes holds from the next iteration on
        return IterationOutput(
            epoch=self.epoch,
            policy_version=version,
            accepted=accepted,
            rejected=rejected,
            outputs=outputs,
            finished=finished,
            policy_events=self._swapping.take_events(),
            stats=stats,
        )

    def generate(self, prompts: Sequence[list[int]], sampling: SamplingParams) -> list[list[int]]:
        """Run these prompts to their ends, together, and return the generated token ids of each.

        For use as a library. Raises EngineUnavailable when a request is refused or fails.
        """
        ids = [f"generate-{self.state.iteration}-{index}" for index in range(len(prompts))]
        texts: dict[str, list[int]] = {request_id: [] for request_id in ids}
        for request_id, prompt in zip(ids, prompts, strict=True):
            self.submit(
                Request(id=request_id, model=self.state.spec.name, prompt_token_ids=list(prompt), sampling=sampling)
            )
        unfinished = set(ids)
        while unfinished:
            output = self.step()
            wrong = [f"refused: {verdict.message}" for verdict in output.rejected if verdict.request_id in texts]
            wrong += [f"failed: {piece.error}" for piece in output.outputs if piece.error and piece.request_id in texts]
            if wrong:
                for request_id in unfinished:
                    self.cancel(request_id)
                raise EngineUnavailable(wrong[0])
            for piece in output.outputs:
                texts.get(piece.request_id, []).extend(piece.token_ids)
            unfinished.difference_update(outcome.request_id for outcome in output.finished)
        return [texts[request_id] for request_id in ids]

    def _begin(self) -> None:
        self.state.iteration += 1
        self._panel.iteration = self.state.iteration
        self.state.num_faults = self._panel.num_faults
        self.state.shortages = {}
        self._commit.begin()

    def _listen(self) -> tuple[list[Accepted], list[Rejected]]:
        for cancelled in self._intake.take_cancelled():
            self._commit.cancel(cancelled)
        accepted, rejected = self._intake.admit_all()
        for request, verdict in rejected:
            self._commit.reject(request, verdict.reason)
        return accepted, [verdict for _, verdict in rejected]

    def _execute(self, batch: Batch) -> None:
        """The only line that meets the model is in here; what it raises ends the batch's requests only.

        Unless it does so again and again: then no request would fare better here, and the error goes up.
        """
        try:
            result: BatchResult = self._executor.collect(self._executor.submit(batch))
        except Exception as error:
            _log.exception("iteration %d failed", batch.iteration)
            self._reporting.executed(batch, learn=False)
            self._commit.fail_batch(batch, f"the model failed: {type(error).__name__}")
            self._failed_executions += 1
            if self._failed_executions >= _MAX_FAILED_EXECUTIONS:
                raise
            return
        self._failed_executions = 0
        self._reporting.executed(batch, learn=True)
        self._commit.advance(batch, result)

    def _must_deliver(self, wanted: bool) -> bool:
        """Held results go out when nothing runs any more, at a fault, and after the longest wait there is."""
        state = self.state
        released = self._release_held or self._panel.num_faults != state.num_faults
        self._release_held = False
        delivers = wanted or not state.running or released or self._commit.any_error
        if not delivers and state.iteration - self._delivered_iteration >= self.config.max_wait_iterations:
            state.rescues["held"] += 1
            delivers = True
        if delivers or not self._outbox:
            self._delivered_iteration = state.iteration
        return delivers


def _allocator(answer: object) -> object:
    return answer
