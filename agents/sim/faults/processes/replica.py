"""What the gate's replicas and those of stateless stages have in common: partitions that come and go.

A partition that comes is read when its committed offset is known and, after that, the version logs were read to the
ends that they have by then: what the owner before knew to be dead, and committed past, would else count as taken.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from agents.sim.faults.processes.living import Living

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.sim.faults.world.follower import Follower
    from agents.sim.faults.world.world import StateWorld


class Replica(Living):
    """One incarnation of one replica. `group`: its topic's consumer group, `topic` what it reads."""

    def __init__(self, world: StateWorld, stage: str, replica: int) -> None:
        super().__init__(world, stage, replica)
        self.follower: Follower | None = None
        self._coming: set[int] = set()  # partitions that are ours and not read yet
        self._leaving: list[tuple[int, Callable[[], None]]] = []
        self._heard: set[int] = set()  # partitions whose news come here
        self._full: set[int] = set()  # of which something waits for room

    def begin(self) -> None:
        for partition in self.world.groups.of(self.stage, self.replica):
            self.assign(partition)

    def assign(self, partition: int) -> None:
        """Take over a partition, once the version logs were read to their ends."""
        if partition in self.positions or partition in self._coming:
            return
        self._coming.add(partition)
        committed, note = self.world.broker.own(self.stage, partition, self.incarnation)
        if partition not in self._heard:
            self._heard.add(partition)
            self.world.subscribe(self, (self.topic, partition), partial(self.poll, partition))
        load = partial(self._load, partition, committed, note)
        if self.follower is None:
            load()
        else:
            self.follower.read_to_ends(load)

    def _load(self, partition: int, committed: int, note: str) -> None:
        if partition in self._coming and not self.lacks(partition, committed or None):
            self._coming.discard(partition)
            self.remember(partition, committed, note)
            self.positions[partition] = committed
            self.after(self.world.latency(), partial(self.poll, partition))

    def lacks(self, partition: int, position: int | None) -> bool:
        """Whether the partition does not have what comes next: it is let go, and not taken again."""
        if not self.world.lacks(self, (self.topic, partition), position):
            return False
        self.revoke(partition)
        return True

    def remember(self, partition: int, committed: int, note: str) -> None:
        raise NotImplementedError

    def poll(self, partition: int) -> None:
        raise NotImplementedError

    def revoke(self, partition: int) -> None:
        self._coming.discard(partition)
        self._full.discard(partition)
        if self.positions.pop(partition, None) is not None:
            self.forget(partition)

    def forget(self, partition: int) -> None:
        raise NotImplementedError

    def let_go(self, partition: int, then: Callable[[], None]) -> None:
        self.revoke(partition)
        then()

    def ousted(self) -> None:
        """Learn that partitions have moved on; or that another process has this one's place, which ends it."""
        if self.world.is_replaced(self):
            self.fenced()
            return
        ours = self.world.groups.of(self.stage, self.replica)
        for partition in (*self.positions, *self._coming):
            # What went to another replica and came back before this one has heard of it begins anew, too.
            if partition not in ours or self.world.broker.owner(self.stage, partition) != self.incarnation:
                self.revoke(partition)
        for partition in ours:
            self.assign(partition)

    @property
    def has(self) -> set[int]:
        return set(self.positions)
