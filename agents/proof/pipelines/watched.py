"""A memory world that keeps what its broker did, in order, and in which processes read late now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.agents.memory.broker import Broker
from spillway.agents.memory.records import Kept
from spillway.agents.memory.world import DriverWorld

if TYPE_CHECKING:
    from spillway.agents.memory.broker import Place
    from spillway.agents.memory.processes import Process


class WatchedBroker(Broker[Kept]):
    """A broker whose commits are kept, and the order of all records."""

    order: list[tuple[Place, Kept]]
    commits: list[tuple[str, int, int, int]]  # group, partition, offset, and how long `order` was by then

    def append(self, place: Place, record: Kept) -> int:
        self.order.append((place, record))
        return super().append(place, record)

    def commit(self, group: str, member: int, offsets: dict[int, tuple[int, str]]) -> None:
        super().commit(group, member, offsets)
        self.commits += [(group, partition, place[0], len(self.order)) for partition, place in offsets.items()]


class WatchedWorld(DriverWorld):
    """A world with such a broker."""

    def __init__(self, seed: int, partitions: dict[str, int], *, gaps: int) -> None:
        super().__init__(seed, partitions, gaps=gaps)
        self.watched = WatchedBroker(lambda: self.now, self.wake, self.gap)
        self.watched.order, self.watched.commits = [], []
        self.broker = self.watched
        self.executor = 0.01  # seconds that a function off the loop takes, at most
        self._late: list[tuple[str, float, float]] = []  # processes by name, from when till when

    def _executes(self) -> tuple[float, bool]:
        return 0.001 + self.executor * self.random.random(), self.random.random() < 0.5  # noqa: PLR2004 (a share)

    def late(self, name: str, start: float, end: float) -> None:
        """Stop the processes of this name from reading anything from `start` till `end`."""
        self._late.append((name, start, end))

    def reads_at(self, process: Process, place: Place, when: float) -> float:
        for name, start, end in self._late:
            if name == process.name and start <= when < end:
                return end
        return super().reads_at(process, place, when)
