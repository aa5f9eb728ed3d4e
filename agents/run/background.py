"""What a gate has done elsewhere while its rounds go on: JSON of long outcomes, and reports that are read again.

Its group would put out a gate that does not ask for records. What waits holds its offsets, and a partition's outcomes
wait for those before them; those of other partitions do not.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from spillway.lineage.headers import json_asked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from spillway.agents.core.joins import Fetch
    from spillway.agents.core.outcomes import Release
    from spillway.lineage.ports import Headers, Record, Work

LONG: Final = 8 << 10  # bytes of the reports; the gate turns shorter ones into JSON where it writes them
_MOST_WAITING: Final = 64 << 20  # bytes of the reports that wait; above that the gate stops reading
_CONVERSIONS: Final = 4  # that are begun: what is made of them is held until their partition's turn
_READ_AT_ONCE: Final = 200  # reports


class Conversions:
    """Makes the messages of releases beforehand, where that takes long."""

    def __init__(
        self, message: Callable[[Release], tuple[bytes, Headers]], begin: Callable[[Callable[[], Any]], Work]
    ) -> None:
        """`message` makes one; it is called here, and by what `begin` has run."""
        self._message = message
        self._begin = begin
        self._begun: list[Release] = []
        self._waiting = 0

    @property
    def waiting(self) -> bool:
        """Whether something was not ready when it was last asked for."""
        return self._waiting > 0

    @property
    def room(self) -> bool:
        return self._waiting < _MOST_WAITING

    def look(self) -> None:
        """Begin a look at all that is to leave: `ready` is asked of each."""
        self._waiting = 0
        self._begun = [release for release in self._begun if not release.message.done()]

    def ready(self, release: Release) -> bool:
        """Return whether a release's message can be had at once; else it is being made."""
        if release.message is None:
            if release.size <= LONG or not json_asked(release.source.payload.headers):
                return True
            if len(self._begun) < _CONVERSIONS:
                release.message = self._begin(lambda: self._message(release))
                self._begun.append(release)
        elif release.message.done():
            return True
        self._waiting += release.size
        return False

    def message(self, release: Release) -> tuple[bytes, Headers]:
        made: tuple[bytes, Headers] = self._message(release) if release.message is None else release.message.result()
        return made


class Rereading:
    """Reads reports again whose payloads the gate's core has dropped, a batch at a time."""

    def __init__(self, begin: Callable[[Sequence[tuple[int, int]]], Work]) -> None:
        """`begin` has records read by (partition, offset); what it finds is a mapping by these."""
        self._begin = begin
        self._asked: deque[Fetch] = deque()
        self._batch: list[Fetch] = []
        self._reading: Work | None = None

    @property
    def busy(self) -> bool:
        return self._reading is not None

    def ask(self, fetches: Iterable[Fetch]) -> None:
        self._asked.extend(fetches)
        if self._asked and self._reading is None:
            self._batch = [self._asked.popleft() for _ in range(min(_READ_AT_ONCE, len(self._asked)))]
            self._reading = self._begin([(fetch.partition, fetch.offset) for fetch in self._batch])

    def take(self) -> list[tuple[Fetch, Record | None]]:
        """Return what was read, None in place of a record that is gone. Raises what reading has raised."""
        if self._reading is None or not self._reading.done():
            return []
        reading, batch = self._reading, self._batch
        self._reading, self._batch = None, []
        found = reading.result()
        self.ask(())
        return [(fetch, found.get((fetch.partition, fetch.offset))) for fetch in batch]
