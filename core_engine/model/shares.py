"""Shares: what of a model's time goes into its linear layers, and what into attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn

from core_engine.clock import MonotonicClock
from core_engine.model.executor import TransformersExecutor
from core_engine.model.kernels import AttentionKernel
from core_engine.model.packed_linear import PackedLinear

_Answer = TypeVar("_Answer")


class Shares:
    """Seconds so far; on a GPU every part is waited for, so that each is counted where it belongs."""

    def __init__(self, device: torch.device) -> None:
        self.seconds: dict[str, float] = {"linear": 0.0, "attention": 0.0}
        self._device = device
        self._clock = MonotonicClock()

    def timed(self, part: str, function: Callable[..., _Answer]) -> Callable[..., _Answer]:
        """The function, with its time counted as that of a part."""

        def call(*args: Any, **kwargs: Any) -> _Answer:
            began = self._now()
            answer = function(*args, **kwargs)
            self.seconds[part] += self._now() - began
            return answer

        return call

    def of(self, whole_seconds: float) -> dict[str, float]:
        """Shares of `linear`, `attention` and `other` in so many seconds."""
        shares = {part: seconds / whole_seconds for part, seconds in self.seconds.items()}
        return shares | {"other": 1.0 - sum(shares.values())}

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
        self.plan = shares.timed("attention", kernel.plan)
        self.write = shares.timed("attention", kernel.write)
        self.attend = shares.timed("attention", kernel.attend)


@contextmanager
def count_shares(executor: TransformersExecutor) -> Iterator[Shares]:
    """Count the time of what the executor computes meanwhile; packed experts, not being layers, are not counted."""
    shares = Shares(torch.device(executor.model.device))
    layers: list[Any] = [module for module in executor.model.modules() if isinstance(module, (nn.Linear, PackedLinear))]
    kernels = [site.kernel for site in executor.sites]
    timed_kernels = {id(kernel): _TimedKernel(kernel, shares) for kernel in kernels}
    try:
        for layer in layers:
            layer.forward = shares.timed("linear", layer.forward)
        for site in executor.sites:
            site.kernel = timed_kernels[id(site.kernel)]
        yield shares
    finally:
        for layer in layers:
            del layer.forward
        for site, kernel in zip(executor.sites, kernels, strict=True):
            site.kernel = kernel
