"""What every input of a memory world is: one process's membership in a `Group`, and a reader of the group's topic."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.memory.groups import HEARTBEAT
from spillway.lineage.errors import FencedError
from spillway.lineage.ports import Commit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spillway.agents.memory.groups import Group, Member
    from spillway.agents.memory.processes import Process
    from spillway.agents.memory.world import World
    from spillway.lineage.ports import Owner, PulledOwner

_CHUNK: Final = 8  # records of a partition at once
_LATE: Final = 0.02  # seconds until a partition that was out of range is read on


class Membership:
    """What does not depend on who drives the input, the world or its owner."""

    _owner: Owner | PulledOwner
    _member: Member

    def __init__(self, world: World[Any], process: Process, group: Group, instance: str) -> None:
        self._world, self._process, self._group = world, process, group
        self._instance = instance
        self._fresh = asyncio.Event()  # records, or partitions to read them of
        self._positions: dict[int, int] = {}  # of what is read
        self._generation = -1  # of the group, as far as it was heeded

    def _join(self) -> None:
        self._member = self._process.reach(lambda: self._group.join(self._instance, self._notified))

    def _subscribe(self) -> None:
        for partition in self._group.partitions:
            self._world.subscribe(self._process, (self._group.topic, partition), self._fresh.set)

    def _notified(self) -> None:
        self._process.after(self._world.latency(), self._heard)

    def _heard(self) -> None:
        """Learn that there is news of the group."""
        raise NotImplementedError

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT * self._world.pace)
            try:
                again = self._process.reach(lambda: self._group.heartbeat(self._member))
            except FencedError:
                again = True
            if again or self._generation != self._group.generation:
                self._heard()

    def _some(self, partition: int, most: int = _CHUNK) -> list[Any]:
        """Return what comes next of a partition; nothing of one that comes late, or has to be judged by its owner."""
        world, slot, position = self._world, (self._group.topic, partition), self._positions[partition]
        late = world.reads_at(self._process, slot, world.now) - world.now
        if late > 0:
            self._process.after(late, self._fresh.set)
            return []
        bounds = world.broker.bounds(slot)
        if bounds.start <= position <= bounds.end:
            some = islice(world.broker.read(slot, position), min(_CHUNK, most))
            return [world.as_read(slot, one) for one in some]
        start = self._owner.out_of_range(partition, position, bounds)
        if start is None:
            del self._positions[partition]
        else:
            self._positions[partition] = start
            self._process.after(_LATE, self._fresh.set)
        return []

    @property
    def _is_read(self) -> bool:
        """Whether the group is at rest, and there is nothing more of what is read."""
        if self._group.preparing or self._generation != self._group.generation:
            return False
        return all(self._world.is_read((self._group.topic, p), position) for p, position in self._positions.items())

    async def positions(self, partitions: Iterable[int]) -> dict[int, Commit]:
        await asyncio.sleep(self._world.latency())
        found = {p: self._world.broker.position(self._group.name, p) for p in partitions}
        return {partition: Commit(*place) for partition, place in found.items() if place is not None}
