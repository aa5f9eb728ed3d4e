"""Hearing of a process's death before its memory is gone, on Linux: by a mutex that it holds.

The kernel tells a parent of a death when the dead one's memory has been taken down: 35 to 60 ms for a process that has
loaded torch (.5 GB of it), during which a backup could have been at work. A robust mutex in memory that both share
(pthread_mutexattr_setrobust(3)) is given to whoever waits for it sooner, as its holder's thread ends: after .3 ms.

By then none of the process's threads comes back to its own code; what it has sent may still arrive, as after any death.
Only that a process is dying is heard here, not how it ends: that is still asked of the kernel, a moment later.

Rules: the child's main thread holds the mutex from its start to its end, and nobody ever unlocks it there. The parent
waits for it on a thread of its own, from when it finds it held.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import mmap
import os
import sys
import threading
from typing import Final

from lineage.errors import SpillwayError

log = logging.getLogger(__name__)

_BYTES: Final = mmap.PAGESIZE  # more than any pthread_mutex_t and its attributes take
_SHARED, _ROBUST = 1, 1  # PTHREAD_PROCESS_SHARED, PTHREAD_MUTEX_ROBUST
_LOOK: Final = 0.02  # seconds between two looks whether the child holds it
_PATIENCE: Final = 1.0  # seconds for a thread whose child is dead to have heard of it


class _Mutex:
    """A pthread mutex in memory that a descriptor stands for."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _BYTES)
        self._place = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(self._memory)))
        self._libc = ctypes.CDLL(None)  # which lets other threads run during a call

    def keep(self) -> None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._memory))

    def make(self) -> None:
        attributes = ctypes.create_string_buffer(_BYTES)
        self._call("pthread_mutexattr_init", attributes)
        self._call("pthread_mutexattr_setpshared", attributes, _SHARED)
        self._call("pthread_mutexattr_setrobust", attributes, _ROBUST)
        self._call("pthread_mutex_init", self._place, attributes)

    def lock(self) -> int:
        return int(self._libc.pthread_mutex_lock(self._place))

    def try_lock(self) -> int:
        return int(self._libc.pthread_mutex_trylock(self._place))

    def unlock(self) -> None:
        self._call("pthread_mutex_unlock", self._place)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._libc, name)(*arguments)
        if code:
            raise OSError(code, f"{name}: {os.strerror(code)}")


class Deathwatch:
    """The parent's side, for one process. Its methods are for one thread."""

    def __init__(self) -> None:
        """Raises OSError where the system has no such mutex; see `watch`."""
        self.inherited = os.memfd_create("spillway-deathwatch")  # what the child is to inherit
        try:
            os.ftruncate(self.inherited, _BYTES)
            self._mutex = _Mutex(self.inherited)
            self._mutex.make()
            self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError:
            os.close(self.inherited)
            raise
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._wait, name="deathwatch", daemon=True)

    def begin(self) -> None:
        os.close(self.inherited)
        self._thread.start()

    def fileno(self) -> int:
        return self._bell

    def rang(self) -> bool:
        """Whether the process is dying; says so once."""
        try:
            return os.eventfd_read(self._bell) > 0
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Watch no longer: the process is dead.

        One that has ruined its own memory may die without the mutex being given back; then the thread is left behind.
        """
        self._over.set()
        self._thread.join(_PATIENCE)
        if self._thread.is_alive():
            log.warning("a process has died without giving back what it held; was its memory corrupted?")
        else:
            os.close(self._bell)

    def _wait(self) -> None:
        found = self._mutex.try_lock()
        while found == 0:  # the child does not hold it yet, or died before it did
            self._mutex.unlock()
            if self._over.wait(_LOOK):
                return
            found = self._mutex.try_lock()
        if found == errno.EBUSY:
            found = self._mutex.lock()
        if found == errno.EOWNERDEAD:
            os.eventfd_write(self._bell, 1)


def watch() -> Deathwatch | None:
    """A watch for a process that is started next; None where the system has none, and a death is found by waiting."""
    if sys.platform != "linux":
        return None
    try:
        return Deathwatch()
    except (OSError, AttributeError) as error:  # a libc that has no robust mutexes
        log.info("deaths are heard of when memory is gone: %s", error)
        return None


def be_watched(descriptor: int) -> None:
    """Have the parent hear of this process's death. Call it once, in the main thread, with what was inherited.

    Raises SpillwayError where the descriptor is not what a parent passes on.
    """
    try:
        mutex = _Mutex(descriptor)
        os.close(descriptor)
    except (OSError, ValueError) as error:
        raise SpillwayError(f"--deathwatch {descriptor} is for a supervisor's children only: {error}") from error
    if mutex.lock():
        raise SpillwayError(f"--deathwatch {descriptor}: somebody else has held what this process was to hold")
    mutex.keep()
