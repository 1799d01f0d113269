"""Blocks of key-value memory: who may hand them out, who owns which, and what they contain."""

from core_engine.kv.allocator import BlockAllocator, FreeListAllocator, PrefixCachingAllocator, SharingAllocator
from core_engine.kv.hashes import chain_block_hashes
from core_engine.kv.pool import KVPool

__all__ = [
    "BlockAllocator",
    "FreeListAllocator",
    "KVPool",
    "PrefixCachingAllocator",
    "SharingAllocator",
    "chain_block_hashes",
]
