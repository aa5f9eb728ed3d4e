"""Which partitions of the egress a client with shared replies reads, and what waits until they are read. Pure.

It reads those of its share, and any other as long as somebody here awaits an outcome there: of a query with a key, of
one that was sent before the partition went to another client, of one that was sent without a share (borrowed). A query
goes out once its partition is read from an end that was asked before, so its outcome lies behind that end.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from spillway.producers.client.queries import Prepared

IDLE_SECONDS: Final = 5.0
"""A partition that nobody needs is read for so long: the next query with its key then need not wait for its end."""


class Partitions:
    """The partitions of one client, by number."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._share: frozenset[int] = frozenset()
        self._read: set[int] = set()
        self._awaited = [0] * count
        self._held: dict[int, list[Prepared]] = defaultdict(list)
        self._idle: dict[int, float] = {}  # since when nobody needs a partition that is read

    @property
    def preferred(self) -> Collection[int]:
        """Where a query goes that may go anywhere: into the share; without one, where something is read anyhow."""
        return self._share & self._read or self._share or frozenset(self._read) or range(self.count)

    @property
    def whole(self) -> bool:
        """Whether all partitions are read, so that no query has to wait for one."""
        return len(self._read) == self.count

    def assign(self, share: Collection[int]) -> None:
        """Replace the share. What is read already goes on as it was."""
        self._share = frozenset(share)

    def admit(self, query: Prepared, partition: int) -> bool:
        """Await an outcome; return whether the query may be sent at once. If not, it is held until `release`."""
        self._awaited[partition] += 1
        if partition in self._read:
            return True
        self._held[partition].append(query)
        return False

    def done(self, partition: int) -> None:
        """Await one outcome less."""
        self._awaited[partition] -= 1

    def to_start(self) -> list[int]:
        """The partitions to be read that are not yet, those where a query is held first."""
        return [*self._held, *sorted(self._share - self._read - self._held.keys())]

    def release(self, partition: int) -> list[Prepared]:
        """Return the queries held for a partition that is read now; once none are, others may go out at once.

        So call it until it returns none: queries of one key keep their order.
        """
        held = self._held.pop(partition, [])
        if not held:
            self._read.add(partition)
        return held

    def to_stop(self, now: float) -> list[int]:
        """Return the partitions to be read no more, which count as not read from now on."""
        needed = {each for each in self._read if each in self._share or self._awaited[each]}
        self._idle = {each: self._idle.get(each, now) for each in self._read - needed}
        stopped = [each for each, since in self._idle.items() if now - since >= IDLE_SECONDS]
        self._read.difference_update(stopped)
        return stopped
