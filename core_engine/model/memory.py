"""How many KV blocks the memory holds, and the tensors they live in."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from core_engine.config import EngineConfig
from core_engine.errors import ModelError
from core_engine.model.kernels import AttentionShape
from core_engine.model.kv_cache import KVCache

# Of free memory. A GPU serves nothing else; a CPU's memory is shared with the rest of the machine.
_DEFAULT_FRACTION = {"cpu": 0.25, "cuda": 0.9}
_CONTROL_GROUP = Path("/sys/fs/cgroup")


def kv_bytes_per_token(shapes: list[AttentionShape]) -> int:
    """Bytes that one token's keys and values take in all layers."""
    return sum(shape.num_kv_heads * (shape.key_size + shape.value_size) * shape.dtype.itemsize for shape in shapes)


def num_kv_blocks(config: EngineConfig, bytes_per_token: int, max_model_len: int, device: torch.device) -> int:
    """Blocks by `kv_memory_bytes`, else by the fraction of memory that is free now, divided by who shares it.

    Without either option no more than `sequence_limit` sequences of full length could use.
    Raises ModelError where less than two blocks fit, or more is asked for than is free: an allocation alone may
    succeed then, and the system kill somebody later.
    """
    block_bytes = bytes_per_token * config.block_size
    free = free_bytes(device)
    if config.kv_memory_bytes is not None:
        budget, origin = config.kv_memory_bytes, "kv_memory_bytes"
        if budget > free:
            raise ModelError(
                f"{origin} asks for {budget:,} bytes for keys and values, but only {free:,} are free; lower it"
            )
    else:
        fraction = (config.kv_memory_fraction or _DEFAULT_FRACTION[device.type]) / config.memory_sharers
        budget = int(fraction * free)
        origin = f"{fraction:.0%} of the free memory"
    num_blocks = budget // block_bytes
    if config.kv_memory_bytes is None and config.kv_memory_fraction is None:
        num_blocks = min(num_blocks, config.sequence_limit * -(-max_model_len // config.block_size))
    if num_blocks < 2:
        raise ModelError(
            f"{origin} gives {budget:,} bytes for keys and values, but this model needs {block_bytes:,} a block of "
            f"{config.block_size} tokens, and two blocks at least; raise kv_memory_bytes or lower block_size"
        )
    return num_blocks


def allocate_caches(
    shapes: list[AttentionShape], num_blocks: int, block_size: int, device: torch.device
) -> list[KVCache]:
    """One KVCache a layer. Only the null blocks are cleared: kernels clear what they begin to fill."""
    caches = []
    for shape in shapes:
        keys, values = (
            torch.empty(shape.num_kv_heads, num_blocks + 1, block_size, size, dtype=shape.dtype, device=device)
            for size in (shape.key_size, shape.value_size)
        )
        keys[:, -1] = 0
        values[:, -1] = 0
        caches.append(KVCache(keys, values))
    return caches


def free_bytes(device: torch.device) -> int:
    """Memory of the device that could be had now; of a CPU, within the limits of its container."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min(_machine_bytes(), _container_bytes())


def _machine_bytes() -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2  # no word on what is free: be modest


def _container_bytes() -> int:
    """What the control group (version 2) has left, files it could drop included; no bound where there is none."""
    try:
        limit, used = (int((_CONTROL_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        stat = dict(line.split() for line in (_CONTROL_GROUP / "memory.stat").read_text().splitlines())
        return limit - used + int(stat["inactive_file"])
    except (OSError, ValueError, KeyError):  # no such group, or "max"
        return 1 << 62
