"""A child that ends when its parent does, however the parent ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 1.0


def follow_parent(parent: int) -> None:
    """Arrange that this process ends at once when process `parent`, which started it, does.

    On Linux the kernel sees to it, even where this process is stopped; elsewhere a thread looks every second.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we came here
        os._exit(1)
    if sys.platform != "linux":
        threading.Thread(target=_watch, args=(parent,), name="parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)
