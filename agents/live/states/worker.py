"""A thread that works for an owner: what it finds is posted to the owner's thread, and so is how it fails.

Nothing is posted once it was closed, nor once nobody listens (a closed loop's `call_soon_threadsafe` raises
RuntimeError): then `stopped` is set, and `run` has to return. Whatever `run` raises is posted to `on_failed`, once;
what is no error of ours is raised in the thread too, as it is a fault of the program.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from spillway.lineage.errors import CheckpointError, SpillwayError

log = logging.getLogger(__name__)

# Calls from the threads of this package to the thread that owns what they call.
#
# Every class here takes a `post`: `post(callback, *args)` has the callback called later, in order, by its owner's
# thread. `loop.call_soon_threadsafe` is one; `Mailbox.post` is one for a thread without a loop, which calls `deliver`
# in its rounds.

Post = Callable[..., object]


class Mailbox:
    """Calls that wait for a thread that has no loop."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        """Have a callback called by the next `deliver`. From any thread."""
        self._calls.put(partial(callback, *args))

    def deliver(self, within: float | None = 0.0) -> int:
        """Call what was posted until now, in order; say how much that was.

        `within`: seconds for the first to come; None: as long as that takes.
        """
        try:
            first = self._calls.get(within != 0.0, within)
        except Empty:
            return 0
        more = self._calls.qsize()
        first()
        for _ in range(more):
            self._calls.get()()
        return 1 + more


class Worker:
    """One thread. It starts by `start`."""

    def __init__(
        self, name: str, run: Callable[[], object], post: Post, on_failed: Callable[[SpillwayError], object]
    ) -> None:
        self._name = name
        self._run = run
        self._post = post
        self._on_failed = on_failed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def start(self) -> None:
        self._thread.start()

    def pause(self, seconds: float) -> bool:
        return self._stop.wait(seconds)

    def stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        """Wait for the end. From the thread itself: without effect."""
        if self._thread is not threading.current_thread():
            self._thread.join()

    def tell(self, callback: Callable[..., object], *args: Any) -> None:
        if self._stop.is_set():
            return
        try:
            self._post(callback, *args)
        except RuntimeError as error:
            log.info("%s stops, as its event loop has ended: %s", self._name, error)
            self._stop.set()

    def _guarded(self) -> None:
        try:
            self._run()
        except SpillwayError as error:
            self.tell(self._on_failed, error)
        except Exception as error:
            self.tell(self._on_failed, CheckpointError(f"the thread failed: {self._name}: {error!r}"))
            raise
