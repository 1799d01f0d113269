"""Leave to use the processor's tile registers (AMX), which Linux gives a process only when asked."""

from __future__ import annotations

import ctypes
import functools
import platform
import sys

_ARCH_PRCTL = 158  # of x86-64
_ARCH_REQ_XCOMP_PERM = 0x1023
_XTILEDATA = 18  # the component of a thread's state that the tiles are


@functools.cache
def may_use_tiles() -> bool:
    """Ask for this process and all its threads, once; False where the system has no such leave or won't give it."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.maxsize < 2**32:
        return False
    system_call = ctypes.CDLL(None).syscall
    system_call.restype = ctypes.c_long
    return bool(
        system_call(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_ARCH_REQ_XCOMP_PERM), ctypes.c_long(_XTILEDATA)) == 0
    )
