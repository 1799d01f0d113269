"""An engine process must not outlive the process that started it, however that one ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_POLL_SECONDS = 0.5


def end_with_parent(parent_pid: int) -> None:
    """End this process when its parent, `parent_pid`, does; at once if that has happened already.

    On Linux the kernel kills it, whatever it is doing; elsewhere a thread looks after the parent.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            _watch(parent_pid)
    else:
        _watch(parent_pid)
    # The parent may have ended before the kernel was asked.
    if os.getppid() != parent_pid:
        os._exit(1)


def _watch(parent_pid: int) -> None:
    def watch() -> None:
        while os.getppid() == parent_pid:
            time.sleep(_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
