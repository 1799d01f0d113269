"""The `prefix_cache` policy: prompts that begin alike share their blocks."""

from __future__ import annotations

from core_engine.hookspecs import HOOKSPEC_VERSION, NoOptions, hookimpl
from core_engine.kv import BlockAllocator, PrefixCachingAllocator


class PrefixCache:
    """Remembers the content of full prompt blocks, so that the next prompt that begins alike reuses them.

    Source: automatic prefix caching (vLLM, SGLang's RadixAttention). No options. Blocks are found by chained
    hashes salted per tenant, shared with reference counts, and evicted least recently used. Guarantees
    the same tokens as without, and never less room: an idle block counts as free.
    """

    Options = NoOptions
    hookspec_range = (HOOKSPEC_VERSION, HOOKSPEC_VERSION)

    def __init__(self, options: NoOptions, seed: int) -> None:
        pass

    @hookimpl
    def create_block_allocator(self, num_blocks: int) -> BlockAllocator:
        """A free list that keeps released content findable."""
        return PrefixCachingAllocator(num_blocks)
