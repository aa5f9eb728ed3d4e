"""The input of a gate in a memory world, over a `Group`: partitions come and go only while its owner waits in `take`.

As of a Kafka client with the cooperative protocol, what beats for the member goes on whatever the owner does, what the
group says is heeded by the next `take`, and only what moves is revoked.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final

from spillway.agents.memory.groups import Ticket
from spillway.lineage.errors import FencedError, OustedError
from spillway.lineage.ports import Commit, PulledInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spillway.agents.memory.groups import Group
    from spillway.agents.memory.processes import Process
    from spillway.agents.memory.world import DriverWorld
    from spillway.lineage.ports import PulledOwner, Record

_HEARTBEAT: Final = 0.1
_AT_ONCE: Final = 8  # records of a partition


class MemoryPulledInput(PulledInput):
    """One process's membership in a group."""

    def __init__(self, world: DriverWorld, process: Process, group: Group, instance: str) -> None:
        self._world, self._process, self._group = world, process, group
        self._instance = instance
        self._fresh = asyncio.Event()  # records, or news of the group
        self._news = False  # of the group
        self._generation = -1
        self._assigned: frozenset[int] = frozenset()
        self._positions: dict[int, int] = {}  # of what is read
        self._paused: set[int] = set()
        self._beating: asyncio.Task[None] | None = None

    async def join(self, owner: PulledOwner) -> None:
        await asyncio.sleep(self._world.latency())
        self._owner = owner
        self._stop_reading(self._positions)
        self._generation, self._assigned = -1, frozenset()
        self._member = self._process.reach(lambda: self._group.join(self._instance, self._notified))
        if self._beating is None:
            for partition in range(self._world.partitions[self._group.topic]):
                self._world.subscribe(self._process, (self._group.topic, partition), self._fresh.set)
            self._beating = asyncio.get_running_loop().create_task(self._beat())

    async def close(self, *, leave: bool) -> None:
        if self._beating is not None:
            self._beating.cancel()
        await self._revoke(self._assigned)
        if leave:
            await asyncio.sleep(self._world.latency())
            self._process.reach(lambda: self._group.leave(self._member))

    # Membership ------------------------------------------------------------------------------------------------

    def ticket(self) -> Ticket:
        """Return what goes with offsets in a transaction, as this member knows its place now."""
        member, generation = self._member, self._generation
        return Ticket(member.number, lambda partitions: self._group.check(member, generation, partitions))

    def _notified(self) -> None:
        self._process.after(self._world.latency(), self._heard)

    def _heard(self) -> None:
        self._news = True
        self._fresh.set()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT)
            try:
                again = self._process.reach(lambda: self._group.heartbeat(self._member))
            except FencedError:
                again = True
            if again or self._generation != self._group.generation:
                self._heard()

    async def _heed_group(self) -> None:
        """Release and take over partitions as the group has said."""
        group, member = self._group, self._member
        while self._news:
            self._news = False
            if group.fences(member):
                raise OustedError(f"another process is {self._instance} of {group.name}")
            if member.gone:
                await self._revoke(self._assigned)
            if member.gone or (group.preparing and member.joined <= group.generation):
                await self._join_again()
            elif self._generation != group.generation and not group.preparing:
                await self._assign()
            member = self._member

    async def _revoke(self, partitions: frozenset[int]) -> None:
        if partitions:
            self._assigned -= partitions
            self._stop_reading(partitions & self._positions.keys())
            await self._owner.revoked(partitions)

    async def _join_again(self) -> None:
        await asyncio.sleep(self._world.latency())
        group, keeps = self._group, self._assigned
        if self._member.gone and not group.fences(self._member):
            self._member = self._process.reach(lambda: group.join(self._instance, self._notified))
        await self._tell(lambda: group.rejoin(self._member, keeps))

    async def _assign(self) -> None:
        self._generation, dealt = self._group.generation, self._member.partitions
        gone, fresh = self._assigned - dealt, dealt - self._assigned
        await self._revoke(gone)
        if fresh:
            self._assigned |= fresh
            self._positions |= await self._owner.assigned(fresh)
        if gone:
            await self._tell(lambda: self._group.deal_again(self._member))

    async def _tell(self, word: Callable[[], None]) -> None:
        await asyncio.sleep(self._world.latency())
        try:
            self._process.reach(word)
        except FencedError:
            self._news = True

    # Reading ---------------------------------------------------------------------------------------------------

    async def take(self, most: int, within: float) -> Sequence[Record]:
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        while True:
            await self._heed_group()
            self._fresh.clear()
            records = self._fetched(most)
            left = until - loop.time()
            if records:
                await asyncio.sleep(self._world.latency())
            if records or left <= 0:
                return records
            self._process.after(left, self._fresh.set)
            await self._fresh.wait()

    def _fetched(self, most: int) -> list[Record]:
        world, found = self._world, []
        for partition, position in sorted(self._positions.items()):
            slot = self._group.topic, partition
            if partition in self._paused:
                continue
            late = world.reads_at(self._process, slot, world.now) - world.now
            if late > 0:
                self._process.after(late, self._fresh.set)
                continue
            bounds = world.broker.bounds(slot)
            if not bounds.start <= position <= bounds.end:
                self._judge(partition, self._owner.out_of_range(partition, position, bounds))
                continue
            records = [one.record() for one in islice(world.broker.read(slot, position), min(_AT_ONCE, most))]
            if records:
                self._positions[partition] = records[-1].offset + 1
                most -= len(records)
                found += records
        return found

    def _judge(self, partition: int, start: int | None) -> None:
        if start is None:
            self._stop_reading([partition])
        else:
            self._positions[partition] = start
            self._fresh.set()

    def _stop_reading(self, partitions: Iterable[int]) -> None:
        for partition in tuple(partitions):
            del self._positions[partition]
            self._paused.discard(partition)

    def pause(self) -> None:
        self._paused.update(self._positions)

    def resume(self) -> None:
        if self._paused:
            self._paused.clear()
            self._fresh.set()

    async def read_on(self, starts: Mapping[int, int]) -> None:
        self._positions = dict(starts)
        self._paused.clear()

    async def positions(self, partitions: Iterable[int]) -> dict[int, Commit]:
        await asyncio.sleep(self._world.latency())
        found = {p: self._world.broker.position(self._group.name, p) for p in partitions}
        return {partition: Commit(*place) for partition, place in found.items() if place is not None}
