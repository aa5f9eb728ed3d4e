"""The input of a stage in a memory world, over a `Group`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from spillway.agents.memory.membership import Membership
from spillway.lineage.errors import BrokerError, FencedError
from spillway.lineage.ports import Bounds, Commit, Input

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spillway.agents.memory.groups import Group
    from spillway.agents.memory.processes import Process
    from spillway.agents.memory.world import World
    from spillway.lineage.ports import Owner, Record


class MemoryInput(Membership, Input):
    """One process's membership in a group, from `start` to `close`."""

    _owner: Owner

    def __init__(
        self,
        world: World[Any],
        process: Process,
        group: Group,
        instance: str,
        owner: Owner,
        commit_every: float | None = None,
    ) -> None:
        """`commit_every`: seconds after which the owner is asked what to commit, as at each revocation; None: never."""
        super().__init__(world, process, group, instance)
        self._owner, self._commit_every = owner, commit_every
        self._news = asyncio.Event()  # of the group
        self._assigned = -1  # the generation whose partitions the owner has taken over
        self._closing = False
        self._committing = asyncio.Lock()  # commits arrive in the order in which they were asked for
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Join. Call it in the process."""
        self._join()
        self._subscribe()
        loop = asyncio.get_running_loop()
        works = [self._belong(), self._read(), self._beat()]
        if self._commit_every is not None:
            works.append(self._commit_now_and_then(self._commit_every))
        self._tasks = [loop.create_task(work) for work in works]

    def _heard(self) -> None:
        self._news.set()

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
            self._positions = {}  # a dict of its own for each assignment
            await self._owner.revoked()
            if self._commit_every is not None:
                await self._commit_all()
            self._generation = -1

    async def _join_again(self) -> None:
        await asyncio.sleep(self._world.latency())
        if self._member.gone and not self._group.fences(self._member):
            self._join()
        try:
            self._process.reach(lambda: self._group.rejoin(self._member))
        except FencedError:
            self._news.set()

    async def _assign(self) -> None:
        await self._revoke()
        self._generation = generation = self._group.generation
        starts = await self._owner.assigned(self._member.partitions)
        self._assigned = generation
        if generation == self._generation == self._group.generation:
            self._positions = dict(starts)
            self._fresh.set()

    # Reading ---------------------------------------------------------------------------------------------------

    @property
    def read_up(self) -> bool:
        """Whether all was accepted that there is to read, and nothing is to be heard of the group."""
        return self._is_read and self._assigned == self._generation and not self._fresh.is_set()

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
        found = {partition: self._some(partition) for partition in sorted(self._positions)}
        return {partition: records for partition, records in found.items() if records}

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
