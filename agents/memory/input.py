"""The input of a stage in a memory world, over a `Group`."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final

from spillway.lineage.errors import BrokerError, FencedError
from spillway.lineage.ports import Bounds, Commit, Input

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spillway.agents.memory.groups import Group
    from spillway.agents.memory.processes import Process
    from spillway.agents.memory.world import DriverWorld
    from spillway.lineage.ports import Owner, Record

_HEARTBEAT: Final = 0.1
_CHUNK: Final = 8  # records at once
_LATE: Final = 0.02  # seconds until a partition that comes late, or was out of range, is looked at again


class MemoryInput(Input):
    """One process's membership in a group, from `start` to `close`."""

    def __init__(
        self,
        world: DriverWorld,
        process: Process,
        group: Group,
        instance: str,
        owner: Owner,
        commit_every: float | None = None,
    ) -> None:
        """`commit_every`: seconds after which the owner is asked what to commit, as at each revocation; None: never."""
        self._commit_every = commit_every
        self._world, self._process, self._group = world, process, group
        self._instance, self._owner = instance, owner
        self._news = asyncio.Event()  # of the group
        self._fresh = asyncio.Event()  # records, or partitions to read them of
        self._positions: dict[int, int] = {}  # of what is read: a dict of its own for each assignment
        self._generation = -1
        self._closing = False
        self._committing = asyncio.Lock()  # commits arrive in the order in which they were asked for
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Join. Call it in the process."""
        self._member = self._process.reach(lambda: self._group.join(self._instance, self._notified))
        for partition in range(self._world.partitions[self._group.topic]):
            self._world.subscribe(self._process, (self._group.topic, partition), self._fresh.set)
        loop = asyncio.get_running_loop()
        works = [self._belong(), self._read(), self._beat()]
        if self._commit_every is not None:
            works.append(self._commit_now_and_then(self._commit_every))
        self._tasks = [loop.create_task(work) for work in works]

    def _notified(self) -> None:
        self._process.after(self._world.latency(), self._news.set)

    # Membership ------------------------------------------------------------------------------------------------

    async def _belong(self) -> None:
        """Release and take over partitions as the group says."""
        while not self._closing:
            await self._news.wait()
            self._news.clear()
            if self._group.fences(self._member):
                self._owner.crashed(BrokerError(f"another process is {self._instance} of {self._group.name}"))
                return
            if self._group.preparing or self._member.gone:
                await self._revoke()
                await self._join_again()
            elif self._generation != self._group.generation:
                await self._assign()

    async def _revoke(self) -> None:
        if self._generation >= 0:
            self._positions = {}
            await self._owner.revoked()
            if self._commit_every is not None:
                await self._commit_all()
            self._generation = -1

    async def _join_again(self) -> None:
        await asyncio.sleep(self._world.latency())
        if self._member.gone and not self._group.fences(self._member):
            self._member = self._process.reach(lambda: self._group.join(self._instance, self._notified))
        try:
            self._process.reach(lambda: self._group.rejoin(self._member))
        except FencedError:
            self._news.set()

    async def _assign(self) -> None:
        await self._revoke()
        self._generation = generation = self._group.generation
        starts = await self._owner.assigned(self._member.partitions)
        if generation == self._generation == self._group.generation:
            self._positions = dict(starts)
            self._fresh.set()

    async def _beat(self) -> None:
        while not self._closing:
            await asyncio.sleep(_HEARTBEAT)
            try:
                again = self._process.reach(lambda: self._group.heartbeat(self._member))
            except FencedError:
                again = True
            if again or self._generation != self._group.generation:
                self._news.set()

    # Reading ---------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while not self._closing:
            await self._fresh.wait()
            self._fresh.clear()
            positions, chunk = self._positions, self._fetched()
            if not chunk:
                continue
            self._fresh.set()  # there may be more
            await asyncio.sleep(self._world.latency())
            if positions is self._positions:  # else it is of an assignment that has ended
                for partition, records in chunk.items():
                    positions[partition] = records[-1].offset + 1
                await self._owner.accept(chunk)

    def _fetched(self) -> dict[int, list[Record]]:
        broker, found = self._world.broker, {}
        for partition, position in sorted(self._positions.items()):
            slot = self._group.topic, partition
            if self._world.reads_at(self._process, slot, self._world.now) > self._world.now:
                self._process.after(_LATE, self._fresh.set)
                continue
            bounds = broker.bounds(slot)
            if not bounds.start <= position <= bounds.end:
                start = self._owner.out_of_range(partition, position, bounds)
                if start is None:
                    del self._positions[partition]
                else:
                    self._positions[partition] = start
                    self._process.after(_LATE, self._fresh.set)
                continue
            records = [one.record() for one in islice(broker.read(slot, position), _CHUNK)]
            if records:
                found[partition] = records
        return found

    async def _commit_now_and_then(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self._commit_all()

    async def _commit_all(self) -> None:
        commits = self._owner.commits()
        offsets = {partition: commits[partition] for partition in self._member.partitions & commits.keys()}
        if offsets and await self.commit(offsets):
            self._owner.committed(offsets)

    # For the owner ---------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[int, Commit]) -> bool:
        member, generation = self._member, self._generation
        async with self._committing:
            await asyncio.sleep(self._world.latency())
            try:
                self._process.reach(lambda: self._group.commit(member, generation, offsets))
            except FencedError:
                return False
        await asyncio.sleep(self._world.latency())
        return True

    async def positions(self, partitions: Iterable[int]) -> dict[int, Commit]:
        await asyncio.sleep(self._world.latency())
        found = {p: self._world.broker.position(self._group.name, p) for p in partitions}
        return {partition: Commit(*place) for partition, place in found.items() if place is not None}

    async def bounds(self, partitions: Iterable[int]) -> dict[int, Bounds]:
        await asyncio.sleep(self._world.latency())
        return {partition: self._world.broker.bounds((self._group.topic, partition)) for partition in partitions}

    async def close(self, *, leave: bool) -> None:
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await self._revoke()
        if leave:
            await asyncio.sleep(self._world.latency())
            self._process.reach(lambda: self._group.leave(self._member))
