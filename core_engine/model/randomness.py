"""Random numbers that depend on nothing but what they are for.

Each is the output of a counter-based generator, Philox4x32-10 (Salmon et al., SC '11), keyed by the
sequence's seed and counted by sample index and position. So a sequence draws the same numbers
alone or in any company, after a preemption, and on any device.
"""

from __future__ import annotations

import numpy as np

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_ROUNDS = 10


def uniforms(seeds: list[int], sample_indices: list[int], positions: list[int]) -> np.ndarray:
    """One float64 in (0, 1) for each (seed, sample index, position), on a grid of 2**-32.

    Seeds of any size count by their lowest 64 bits.
    """
    key = np.array([seed & 0xFFFFFFFFFFFFFFFF for seed in seeds], dtype=np.uint64)
    position = np.array(positions, dtype=np.uint64)
    sample_index = np.array(sample_indices, dtype=np.uint64)
    counter = (position & _LOW, position >> _SHIFT, sample_index & _LOW, sample_index >> _SHIFT)
    return (philox4x32(counter, (key & _LOW, key >> _SHIFT))[0].astype(np.float64) + 0.5) * 2.0**-32


def philox4x32(
    counter: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], key: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Ten rounds; every element is a 32-bit word held as uint64."""
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        left, right = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
        a, b, c, d = (right >> _SHIFT) ^ b ^ k0, right & _LOW, (left >> _SHIFT) ^ d ^ k1, left & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return a, b, c, d
