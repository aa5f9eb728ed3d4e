"""Reading reports again whose payloads the gate's core has dropped: in a thread, while the gate goes on polling.

Its group would put out a gate that does not poll. The requests are parked meanwhile, and hold their offsets.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agents.core.joins import Fetch
    from agents.live.spans import SpanReader

_AT_ONCE = 200  # reports
_WITHIN = 60.0  # seconds for one stretch

Answer = tuple["Fetch", Any]


class Rereading:
    """Reads records of one topic again, a batch at a time; `reader` makes what reads them. For one thread."""

    def __init__(self, reader: Callable[[], SpanReader]) -> None:
        self._make = reader
        self._reader: SpanReader | None = None
        self._asked: deque[Fetch] = deque()
        self._read: queue.SimpleQueue[list[Answer] | BaseException] = queue.SimpleQueue()
        self.busy = False

    def ask(self, fetches: Iterable[Fetch]) -> None:
        self._asked.extend(fetches)
        if self._asked and not self.busy:
            self.busy = True
            batch = [self._asked.popleft() for _ in range(min(_AT_ONCE, len(self._asked)))]
            threading.Thread(target=self._run, args=(batch,), name="rereading", daemon=True).start()

    def take(self) -> list[Answer]:
        """Give what was read, with None in place of a message that is gone. Raises what reading has raised."""
        if not self.busy:
            return []
        try:
            read = self._read.get_nowait()
        except queue.Empty:
            return []
        self.busy = False
        if isinstance(read, BaseException):
            raise read
        self.ask(())
        return read

    def _run(self, batch: list[Fetch]) -> None:
        try:
            self._reader = self._reader or self._make()
            found = self._reader.records([(fetch.partition, fetch.offset) for fetch in batch], _WITHIN)
            self._read.put([(fetch, found.get((fetch.partition, fetch.offset))) for fetch in batch])
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is taken
            self._read.put(error)
