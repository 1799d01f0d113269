"""The counter-based generator: known answers, and independence of the company."""

from __future__ import annotations

import numpy as np

from core_engine.model.randomness import philox4x32, uniforms


def test_philox_known_answers() -> None:
    """The known-answer vectors that come with Random123, the authors' own implementation."""
    vectors = [
        ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ]
    for counter, key, expected in vectors:
        words = philox4x32(
            tuple(np.array([word], dtype=np.uint64) for word in counter),
            tuple(np.array([word], dtype=np.uint64) for word in key),
        )
        assert [int(word[0]) for word in words] == expected


def test_uniforms_depend_on_their_own_triple_only() -> None:
    together = uniforms([1, 1, 2, 1], [0, 1, 0, 0], [5, 5, 5, 6])
    alone = [uniforms([s], [i], [p])[0] for s, i, p in [(1, 0, 5), (1, 1, 5), (2, 0, 5), (1, 0, 6)]]
    assert together.tolist() == alone
    assert len(set(alone)) == 4


def test_uniforms_are_uniform_and_never_at_the_ends() -> None:
    numbers = uniforms([7] * 20_000, [0] * 20_000, list(range(20_000)))
    assert numbers.min() > 0.0
    assert numbers.max() < 1.0
    counts, _ = np.histogram(numbers, bins=20, range=(0.0, 1.0))
    assert ((counts - 1000) ** 2 / 1000).sum() < 60
