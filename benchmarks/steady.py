"""Sends at a steady rate, whatever has become of what was sent before, and sees when each outcome came."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spillway.lineage.errors import SpillwayError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from spillway.lineage.message import Outcome

PATIENCE: Final = 120.0
_POLL: Final = 0.02


class Sent(NamedTuple):
    """One outcome: when its query was due (unix), and after how many seconds it came."""

    due: float
    took: float
    outcome: Outcome


class Steady(threading.Thread):
    """Sends from `start` on, for some seconds or until `end`; latency counts from when a query was due."""

    def __init__(self, rate: float, send: Callable[[int], Future[Outcome]], seconds: float = float("inf")) -> None:
        super().__init__(daemon=True)
        self._rate, self._send, self._seconds = rate, send, seconds
        self._over = threading.Event()
        self._ways: list[Future[Outcome]] = []
        self.done: list[Sent] = []
        self._error: SpillwayError | None = None

    def run(self) -> None:
        began = time.time()
        try:
            while (after := len(self._ways) / self._rate) < self._seconds:
                if self._over.wait(max(0.0, began + after - time.time())):
                    return
                self._ways.append(self._send(len(self._ways)))
                self._ways[-1].add_done_callback(partial(self._ended, began + after))
        except SpillwayError as error:
            self._error = error

    def _ended(self, due: float, way: Future[Outcome]) -> None:
        took = time.time() - due
        if way.exception() is None:
            self.done.append(Sent(due, took, way.result()))

    def end(self) -> list[Sent]:
        """Send no more, and wait for the outcomes. Raises where there is none."""
        self._over.set()
        return self.rest()

    def whole(self) -> list[Sent]:
        """Send all, and wait for the outcomes."""
        self.start()
        return self.rest()

    def rest(self) -> list[Sent]:
        """Wait for what is still to be sent, and for the outcomes."""
        self.join()
        if self._error is not None:
            raise self._error
        for way in self._ways:
            way.result(PATIENCE)
        until(lambda: len(self.done) == len(self._ways), "the last outcome")
        return self.done


def until(condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """Poll until a condition gives something true, and return that. Raises SpillwayError that says `what` did not."""
    end = time.monotonic() + patience
    while not (found := condition()):
        if time.monotonic() > end:
            raise SpillwayError(f"not within {patience:g} s: {what}")
        time.sleep(_POLL)
    return found
