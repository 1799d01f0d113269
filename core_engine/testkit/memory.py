"""How much a policy remembers, so that what it remembers of every request it has ever seen shows."""

from __future__ import annotations

import gc
import types
from collections import deque
from typing import Any

from core_engine.state import EngineState

_OPAQUE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, EngineState)
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)


def num_remembered(policy: Any) -> int:
    """Items in all containers that can be reached from the policy; what the engine itself keeps is left out."""
    total = 0
    seen: set[int] = set()
    pending = [policy]
    while pending:
        thing = pending.pop()
        if id(thing) in seen or isinstance(thing, _OPAQUE):
            continue
        seen.add(id(thing))
        if isinstance(thing, _CONTAINERS):
            total += len(thing)
        pending += gc.get_referents(thing)
    return total
