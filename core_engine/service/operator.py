"""The operator's questions, in the engine process: policies are built on a thread, adopted between two iterations."""

from __future__ import annotations

import queue
import threading

from core_engine.engine import Engine
from core_engine.errors import JitneyError
from core_engine.messages import Answer, DescribePolicies, DescribeRequest, PolicyEvent, Query, SwapPolicies
from core_engine.policy_set import PolicySet
from core_engine.swapping import RestartNeeded


class Operator:
    """Answers queries; one that takes long is finished by `finished`, which the engine's loop calls."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._built: queue.SimpleQueue[tuple[Query, PolicySet | Exception]] = queue.SimpleQueue()
        self._num_building = 0

    @property
    def is_busy(self) -> bool:
        """Whether something is being built, so that the loop must look again soon."""
        return self._num_building > 0

    def take(self, query: Query) -> Answer | None:
        """The answer, or None where it follows later."""
        match query.question:
            case DescribePolicies():
                return self._answer(query, result=self._engine.describe_policies())
            case DescribeRequest(request_id):
                return self._answer(query, result=self._engine.describe_request(request_id))
            case SwapPolicies(policies):
                # Importing a stranger's module may take long, and no decode should wait for it.
                self._num_building += 1
                threading.Thread(target=self._build, args=(query, policies), daemon=True).start()
                return None

    def finished(self) -> list[Answer]:
        """Adopt what has been built meanwhile."""
        answers = []
        while not self._built.empty():
            query, built = self._built.get()
            self._num_building -= 1
            if isinstance(built, PolicySet):
                answers.append(self._answer(query, result=self._engine.adopt_policies(built)))
            else:
                answers.append(self._answer(query, error=built))
        return answers

    def _build(self, query: Query, policies: tuple[str, ...]) -> None:
        try:
            self._built.put((query, self._engine.build_policies(policies)))
        except Exception as error:
            self._built.put((query, error))

    def _answer(
        self, query: Query, result: PolicyEvent | object | None = None, error: Exception | None = None
    ) -> Answer:
        message = None
        if error is not None:
            message = str(error) if isinstance(error, JitneyError) else f"the policies can't be built: {error!r}"
        return Answer(
            epoch=query.epoch,
            number=query.number,
            result=result,  # type: ignore[arg-type]
            error=message,
            restart_needed=isinstance(error, RestartNeeded),
        )
