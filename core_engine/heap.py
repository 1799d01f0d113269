"""The heap of this process."""

from __future__ import annotations

import ctypes


def give_back_memory() -> None:
    """Return to the system what has been freed: glibc keeps what lies below memory that is in use."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
