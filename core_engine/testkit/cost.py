"""What a policy's hooks cost beside those of the defaults, at many sequences, both measured in the same run."""

from __future__ import annotations

import statistics

import msgspec

from core_engine.clock import MonotonicClock
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor import Batch, BatchResult, ModelSpec
from core_engine.selection import NamedPolicy
from core_engine.testkit.engine import VOCAB_SIZE
from core_engine.testkit.subject import Subject
from core_engine.testkit.workloads import Wish

SIZES = (64, 256, 1024)
MOST_TIMES = 25.0  # as much as all hooks of the defaults together; a loop over all pairs needs hundreds of times
_WARM_UP = 6
_MEASURED = 15
_OUTPUT = 4096  # nothing ends while it is measured
_TENANTS = 8


class Cost(msgspec.Struct, frozen=True):
    """Median seconds an iteration with `num_sequences` running and as many waiting."""

    num_sequences: int
    policy_seconds: float
    defaults_seconds: float

    @property
    def times(self) -> float:
        """How many times as much as the defaults' hooks."""
        return self.policy_seconds / self.defaults_seconds

    @property
    def is_excessive(self) -> bool:
        """Whether it is more than a policy may cost."""
        return self.times > MOST_TIMES


class _NoModel:
    """An executor that computes nothing."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.spec = ModelSpec(
            name="simulated",
            architecture="none",
            dtype="float32",
            device="none",
            vocab_size=VOCAB_SIZE,
            max_model_len=8192,
            num_blocks=num_blocks,
            block_size=block_size,
            kv_bytes_per_token=1,
        )

    def submit(self, batch: Batch) -> object:
        return batch

    def collect(self, handle: object) -> BatchResult:
        assert isinstance(handle, Batch)
        return BatchResult([1] * len(handle.sample_rows))


def measure(subject: Subject, num_sequences: int) -> Cost:
    """Step an engine with the policy and one without in turn, so that a busy machine slows down both."""
    name = subject.build(0).name
    with_policy = _loaded_engine([subject.build(0)], num_sequences)
    defaults = _loaded_engine([], num_sequences)
    own: list[float] = []
    usual: list[float] = []
    for step in range(_WARM_UP + _MEASURED):
        for engine, spent in ((with_policy, own), (defaults, usual)):
            stats = engine.step().stats
            assert stats is not None
            seconds = [s for key, s in stats.decision_seconds.items() if engine is defaults or key.endswith(f"/{name}")]
            if step >= _WARM_UP:
                spent.append(sum(seconds))
    return Cost(num_sequences, statistics.median(own), statistics.median(usual))


def _loaded_engine(policies: list[NamedPolicy], num_sequences: int) -> Engine:
    config = EngineConfig(
        executor="simulated",
        block_size=16,
        token_limit=max(512, 8 * num_sequences),
        sequence_limit=num_sequences,
        seed=0,
    )
    engine = Engine(config, _NoModel(8 * num_sequences, 16), clock=MonotonicClock(), policies=policies)
    for number in range(2 * num_sequences):
        wish = Wish(
            prompt_tokens=1 + number % 30,
            output_tokens=_OUTPUT,
            tenant=f"tenant-{number % _TENANTS}",
            priority=(-10, 0, 10)[number % 3],
        )
        engine.submit(wish.request(f"r{number}", number))
    return engine
