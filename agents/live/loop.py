"""The event loop of a stage's process, which waits for a lock and for no file.

Whatever wakes it is a thread: the consumer's, a worker's, a log's. asyncio's own loop waits for a socket to which the
thread writes: four system calls, during which two threads contend for the interpreter's lock. Such a wakeup costs a
stage twice as much, and it needs two a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import signal
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_LONGEST: Final = 86_400.0  # seconds of one wait; the loop then waits again


class _Lock(selectors.BaseSelector):
    """Waits until `wake` is called. The one file that it is given, the loop's own socket, it ignores."""

    def __init__(self) -> None:
        self._keys: dict[Any, selectors.SelectorKey] = {}
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """End the wait that is under way, or the next one. For any thread, and for handlers of signals."""
        with contextlib.suppress(RuntimeError):  # it is to end already
            self._lock.release()

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            self._lock.acquire()
        elif timeout > 0:
            self._lock.acquire(timeout=min(timeout, _LONGEST))
        else:
            self._lock.acquire(blocking=False)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self._keys:
            raise NotImplementedError("a stage's loop waits for no files; read them in a thread")
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, fileobj, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class ThreadLoop(asyncio.SelectorEventLoop):
    """An event loop that threads wake by `call_soon_threadsafe`; it has no sockets, pipes or subprocesses."""

    def __init__(self) -> None:
        self._waits = _Lock()
        super().__init__(self._waits)

    def _write_to_self(self) -> None:
        self._waits.wake()

    def add_signal_handler(self, sig: int, callback: Callable[[*_Ts], object], *args: *_Ts) -> None:
        """Run a callback on the loop at each signal of this number; asyncio would learn of it from the socket.

        Python calls a handler in the main thread, where the loop is; the kernel interrupts its wait for that.
        """
        super().add_signal_handler(sig, callback, *args)
        signal.signal(sig, lambda *_: self.call_soon_threadsafe(callback, *args))


def run_loop(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on such a loop, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=ThreadLoop) as runner:
        return runner.run(main)
