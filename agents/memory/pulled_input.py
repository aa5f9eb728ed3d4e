"""The input of a gate in a memory world, over a `Group`: partitions come and go only while its owner waits in `take`.

As of a Kafka client with the cooperative protocol, what beats for the member goes on whatever the owner does, what the
group says is heeded by the next `take`, and only what moves is revoked.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from spillway.agents.memory.groups import Ticket
from spillway.agents.memory.membership import Membership
from spillway.lineage.errors import FencedError, OustedError
from spillway.lineage.ports import PulledInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spillway.agents.memory.groups import Group
    from spillway.agents.memory.processes import Process
    from spillway.agents.memory.world import World
    from spillway.lineage.ports import PulledOwner, Record


class MemoryPulledInput(Membership, PulledInput):
    """One process's membership in a group."""

    _owner: PulledOwner

    def __init__(self, world: World[Any], process: Process, group: Group, instance: str) -> None:
        super().__init__(world, process, group, instance)
        self._news = False  # of the group
        self._coming = False  # whether records are on their way
        self._assigned: frozenset[int] = frozenset()
        self._paused: set[int] = set()
        self._beating: asyncio.Task[None] | None = None

    async def join(self, owner: PulledOwner) -> None:
        await asyncio.sleep(self._world.latency())
        self._owner = owner
        self._stop_reading(self._positions)
        self._generation, self._assigned = -1, frozenset()
        self._join()
        if self._beating is None:
            self._subscribe()
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

    def _heard(self) -> None:
        self._news = True
        self._fresh.set()

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
            self._join()
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

    @property
    def read_up(self) -> bool:
        """Whether all was taken that there is to read, and nothing is to be heard of the group."""
        return self._is_read and not (self._coming or self._news)

    def stir(self) -> None:
        """End a wait in `take`."""
        self._fresh.set()

    async def take(self, most: int, within: float) -> Sequence[Record]:
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        while True:
            await self._heed_group()
            self._fresh.clear()
            records = self._fetched(most)
            left = until - loop.time()
            if records:
                self._coming = True
                await asyncio.sleep(self._world.latency())
                self._coming = False
            if records or left <= 0:
                return records
            self._process.after(left, self._fresh.set)
            await self._fresh.wait()

    def _fetched(self, most: int) -> list[Record]:
        found: list[Record] = []
        for partition in sorted(self._positions.keys() - self._paused):
            records = self._some(partition, most - len(found))
            if records:
                self._positions[partition] = records[-1].offset + 1
                found += records
        return found

    def _stop_reading(self, partitions: Iterable[int]) -> None:
        for partition in tuple(partitions):
            del self._positions[partition]
        self._paused.intersection_update(self._positions)

    def pause(self) -> None:
        self._paused.update(self._positions)

    def resume(self) -> None:
        if self._paused:
            self._paused.clear()
            self._fresh.set()

    async def read_on(self, starts: Mapping[int, int]) -> None:
        self._positions = dict(starts)
        self._paused.clear()
