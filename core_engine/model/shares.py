"""Shares: what of a model's time goes into its linear layers, into attention, and into what else by name."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from core_engine.clock import MonotonicClock
from core_engine.model.executor import TransformersExecutor
from core_engine.model.fused import layer_by_layer, operators_in
from core_engine.model.kernels import AttentionKernel
from core_engine.model.packing import LINEAR_LAYERS

_Answer = TypeVar("_Answer")
_LINEAR, _ATTENTION, _OTHER = "linear", "attention", "other"
_OPERATIONS = ("rms_norm", "add_rms_norm", "gate", "rotate_and_write")


class Shares:
    """Seconds and calls so far by (part, operation), where a part is `linear`, `attention` or `other`.

    On a GPU every operation is waited for, so that each is counted where it belongs.
    """

    def __init__(self, device: torch.device) -> None:
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.calls: Counter[tuple[str, str]] = Counter()
        self._device = device
        self._clock = MonotonicClock()

    def timed(self, part: str, operation: str, function: Callable[..., _Answer]) -> Callable[..., _Answer]:
        """The function, with its time counted as that of an operation."""
        key = part, operation

        def call(*args: Any, **kwargs: Any) -> _Answer:
            began = self._now()
            answer = function(*args, **kwargs)
            self.seconds[key] += self._now() - began
            self.calls[key] += 1
            return answer

        return call

    def of(self, whole_seconds: float) -> dict[str, float]:
        """Shares of `linear`, `attention` and `other`, which is all the rest, in so many seconds."""
        seconds = dict.fromkeys((_LINEAR, _ATTENTION), 0.0)
        for (part, _), spent in self.seconds.items():
            if part in seconds:
                seconds[part] += spent
        shares = {part: spent / whole_seconds for part, spent in seconds.items()}
        return shares | {_OTHER: 1.0 - sum(shares.values())}

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return self._clock.now()


class _TimedKernel:
    """A kernel whose time is counted; planning is part of it."""

    def __init__(self, kernel: AttentionKernel, shares: Shares) -> None:
        self.name = kernel.name
        self.reads_whole_blocks = kernel.reads_whole_blocks
        self.refusal = kernel.refusal
        self.plan = shares.timed(_ATTENTION, "plan", kernel.plan)
        self.write = shares.timed(_ATTENTION, "write", kernel.write)
        self.attend = shares.timed(_ATTENTION, "attend", kernel.attend)


@contextmanager
def count_shares(executor: TransformersExecutor) -> Iterator[Shares]:
    """Count the time of what the executor computes meanwhile; packed experts, not being layers, are not counted.

    Layers run one by one for that, so that a pass of few rows takes longer than it does otherwise.
    """
    shares = Shares(torch.device(executor.model.device))
    layers: dict[Any, str] = {
        module: name.rpartition(".")[2]
        for name, module in executor.model.named_modules()
        if isinstance(module, LINEAR_LAYERS)
    }
    operators: list[Any] = operators_in(executor.model)
    kernels = [site.kernel for site in executor.sites]
    timed_kernels = {id(kernel): _TimedKernel(kernel, shares) for kernel in kernels}
    try:
        for layer, name in layers.items():
            layer.forward = shares.timed(_LINEAR, name, layer.forward)
        for each in operators:
            for name in _OPERATIONS:
                setattr(each, name, shares.timed(_OTHER, name, getattr(each, name)))
        for site in executor.sites:
            site.kernel = timed_kernels[id(site.kernel)]
        with layer_by_layer(executor.model):
            yield shares
    finally:
        for layer in layers:
            del layer.forward
        for each in operators:
            for name in _OPERATIONS:
                delattr(each, name)
        for site, kernel in zip(executor.sites, kernels, strict=True):
            site.kernel = kernel
