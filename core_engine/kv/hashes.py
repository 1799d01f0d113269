"""Hashes of full prompt blocks, chained so that equal hashes mean equal text from the start."""

from __future__ import annotations

import hashlib
from array import array

_DIGEST_BYTES = 16


def chain_block_hashes(token_ids: list[int], block_size: int, salt: str) -> tuple[bytes, ...]:
    """One hash for each full block of the tokens; each covers everything before it, and the salt.

    Keys and values of a token depend on all tokens before it, so only a chain may be looked up. Who
    doesn't know the salt can't find out by timing what others have asked.
    """
    digest = hashlib.blake2b(salt.encode(), digest_size=_DIGEST_BYTES).digest()
    hashes = []
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        block = array("q", token_ids[start : start + block_size]).tobytes()
        digest = hashlib.blake2b(digest + block, digest_size=_DIGEST_BYTES).digest()
        hashes.append(digest)
    return tuple(hashes)
