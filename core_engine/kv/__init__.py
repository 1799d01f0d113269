"""Blocks of key-value memory: who may hand them out, and who owns which."""

from core_engine.kv.allocator import BlockAllocator, FreeListAllocator
from core_engine.kv.pool import KVPool

__all__ = ["BlockAllocator", "FreeListAllocator", "KVPool"]
