"""What children have that an author's code forks in a process of ours: none of its sockets, files and signal handlers.

How the ends of our own children are heard, and how they are ended, is here as well. A fork copies all that a process
has. A child that has the event loop's wake-up descriptor tells its parent of every signal that it gets itself; one that
has a worker's socket keeps the connection open when the worker dies. This module needs the standard library alone, as a
worker with an interpreter of its own loads it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
import weakref
from typing import Any, Final, TypeVar

_Closable = TypeVar("_Closable")

_DEFAULTS: Final[dict[signal.Signals, Any]] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}
_ours: weakref.WeakSet[Any] = weakref.WeakSet()
_masks = threading.local()


def ours(thing: _Closable) -> _Closable:
    """Register a socket, a file or a selector that forked children close; returns it."""
    _ours.add(thing)
    return thing


def ours_of_loop(loop: Any) -> None:
    """Register what an event loop listens with; asyncio offers no other way to it."""
    for name in ("_selector", "_ssock", "_csock"):
        if (thing := getattr(loop, name, None)) is not None:
            ours(thing)


@functools.cache  # what is registered stays so
def isolate_children() -> None:
    """Start whatever this process forks from now on with default signal handlers and without what is `ours`."""
    os.register_at_fork(before=_before, after_in_parent=_unblock, after_in_child=_begin)


def _before() -> None:
    """Block signals until the child has handlers of its own: `Pool` ends its children right away."""
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _DEFAULTS)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _begin() -> None:
    signal.set_wakeup_fd(-1)
    for number, handler in _DEFAULTS.items():
        signal.signal(number, handler)
    for thing in list(_ours):
        with contextlib.suppress(Exception):  # one that is closed already, or in another thread's hands
            thing.close()
    _unblock()


def watch_of(child: int) -> int | None:
    """Return a descriptor that becomes readable when a child ends; None where the system has no such thing."""
    try:
        return os.pidfd_open(child) if sys.platform == "linux" else None
    except OSError:  # a kernel or a sandbox that has none
        return None


def end_group(leader: int) -> None:
    """Kill whatever is left of a process group; a leader that has ended is missed by nobody."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
