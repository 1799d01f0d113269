"""EngineConfig: everything that shapes an engine, in one flat frozen struct."""

from __future__ import annotations

import secrets
from typing import Annotated, Literal

import msgspec

from core_engine.errors import ConfigurationError
from core_engine.objectives import Objective
from core_engine.request import Kind

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Quantization = Literal["int8"]
Device = Literal["auto", "cpu", "cuda"]
ExecutorName = Literal["transformers", "simulated"]
Weight = Annotated[float, msgspec.Meta(gt=0)]
NumThreads = Annotated[int, msgspec.Meta(ge=1, le=1024)]
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one engine; every field has a unit in its name or in its comment.

    Raises ConfigurationError where two options contradict each other; a single value out of
    range is refused by msgspec when the struct is decoded or converted.
    """

    model: str = "smollm2"  # a directory, a .gguf file, a hub id, or the embedded default
    served_model_name: str | None = None  # the name clients use; default: the model's own
    task: Kind = "generate"  # what the model is for: text, or embeddings of texts
    executor: ExecutorName = "transformers"
    dtype: Dtype = "auto"  # auto: bfloat16 where the device computes in it, else float32
    quantize: Quantization | None = None  # linear layers with weights of that format, for CPUs
    device: Device = "auto"
    threads: NumThreads | None = None  # CPU threads of the model; default: one per core
    probe: bool = True  # compare mixed batches with lone ones after loading
    kernels: tuple[str, ...] | None = None  # entry points of jitney.kernels; default: those that come with Jitney
    fuse: bool = True  # swap known modules for fused ones, where these compute the same

    block_size: Annotated[int, msgspec.Meta(ge=8, le=256)] = 32  # tokens per KV block
    kv_memory_bytes: PositiveInt | None = None  # wins over the fraction
    kv_memory_fraction: Annotated[float, msgspec.Meta(gt=0, le=0.95)] | None = None  # of free device memory
    memory_sharers: PositiveInt = 1  # engines that divide the fraction (the gateway counts them)
    max_model_len: PositiveInt | None = None  # tokens of prompt and output; default: the model's own
    default_max_tokens: PositiveInt | None = None  # for requests that give none; default: what fits

    token_limit: PositiveInt = 512  # tokens per iteration
    sequence_limit: PositiveInt = 64  # sequences running at once
    waiting_window: PositiveInt = 256  # waiting sequences an iteration sees of each queue
    max_wait_iterations: PositiveInt = 4096  # beyond it a request boards next, whatever policies say

    policies: tuple[str, ...] = ()  # "name" or "name:option=value,...", in the order they are asked
    max_policy_faults: Annotated[int, msgspec.Meta(ge=0)] = 3  # more within the window: retired
    fault_window_iterations: PositiveInt = 1000
    probation_iterations: PositiveInt = 1000  # after a swap, with a way back on faults or missed objectives
    objectives: dict[str, Objective] = {}  # by class
    tenant_weights: dict[str, Weight] = {}  # by tenant; those of API keys are added
    strict: bool = False  # raise at a policy's fault instead of falling back (for tests)
    check_integrity: bool = False  # audit the KV pool after every iteration, not only when idle
    seed: int | None = None  # for requests without one; default: drawn at start

    def __post_init__(self) -> None:
        if self.token_limit < self.sequence_limit:
            raise ConfigurationError(
                f"token_limit {self.token_limit} is below sequence_limit {self.sequence_limit}: every running "
                "sequence needs one token an iteration; raise the first or lower the second"
            )

        if self.quantize is not None:
            self._check_quantization(self.quantize)

    def _check_quantization(self, wanted: Quantization) -> None:
        if self.device == "cuda":
            raise ConfigurationError(
                f"quantize '{wanted}' is computed by CPUs alone; leave it out or set device to cpu"
            )
        if self.dtype == "float16":
            raise ConfigurationError(
                f"quantize '{wanted}' goes with bfloat16 and float32, not with float16; set dtype to one of them"
            )

    def drawn_seed(self) -> int:
        """The configured seed, or one drawn now."""
        return secrets.randbits(48) if self.seed is None else self.seed
