"""Torch's own profiler, reduced to what took longest."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile


def top_torch_operations(run: Callable[[], None], repeats: int, top: int) -> dict[str, dict[str, float]]:
    """Seconds a run that torch's operations take by themselves, on the GPU where there is one, and their calls.

    Kernels of our own that torch doesn't know are not among them.
    """
    on_gpu = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiler:
        for _ in range(repeats):
            run()
    microseconds = {
        event.key: (event.self_device_time_total if on_gpu else event.self_cpu_time_total, event.count)
        for event in profiler.key_averages()
    }
    best = sorted(microseconds.items(), key=lambda item: item[1][0], reverse=True)[:top]
    return {key: {"seconds": total * 1e-6 / repeats, "calls": count // repeats} for key, (total, count) in best}
