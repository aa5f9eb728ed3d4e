"""The ports of a process of a memory world. `spillway.lineage.ports` has what they promise.

Each is bound to a process when it is made. A call may be where the process dies (`Process.reach`), and reaches nothing
once it is dead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.memory.processes import AFTER, BEFORE
from spillway.agents.memory.wire import Wire
from spillway.lineage.errors import AbortedError, BrokerError, FencedError, SilentError
from spillway.lineage.ports import Bounds, Clock, Executor, Following, Log, Output, Since, Spans, Transactions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from spillway.agents.memory.groups import Ticket
    from spillway.agents.memory.processes import Process
    from spillway.agents.memory.world import World
    from spillway.lineage.ports import Commit, Outgoing, Record, Slot

_AT_ONCE: Final = 3  # records of a log that are accepted before others get to do something
_PAUSE: Final = 0.002  # seconds until the next ones are, at most


class MemoryClock(Clock):
    """The clocks of a process, of which the first may be ahead of the world's."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now(self) -> float:
        return self._process.now

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class MemoryExecutor(Executor):
    """Runs a function when the world says, at the start or at the end of its time."""

    def __init__(self) -> None:
        self._last: asyncio.Future[Any] | None = None

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        before, loop = self._last, asyncio.get_running_loop()

        async def in_turn() -> Any:
            if before is not None:
                await asyncio.wait([before])
            return await loop.run_in_executor(None, function)

        self._last = loop.create_task(in_turn())
        return asyncio.shield(self._last)


class MemoryOutput(Output):
    """What a process sends, on its wire."""

    def __init__(self, world: World[Any], process: Process, stored: Callable[[Sequence[Any]], None]) -> None:
        """`stored` is called with tokens. Nothing is lost here but with the process."""
        self._process, self._limit = process, world.in_flight
        self._world = world
        self._wire: Wire[Any] = Wire(world, process)
        self._stored = stored
        self._unacknowledged: dict[Slot, deque[list[Any]]] = {}  # tokens, each with whether its record is stored
        self._idle: asyncio.Event | None = None
        self.in_flight = 0

    @property
    def room(self) -> bool:
        return self.in_flight < self._limit

    def send(self, record: Outgoing, token: object, *, vital: bool = True) -> None:  # noqa: ARG002 - none is lost here
        place = record.topic, record.partition
        self.in_flight += 1
        sent = [token, False]
        self._unacknowledged.setdefault(place, deque()).append(sent)
        stored = self._world.as_stored(record)
        self._process.reach(lambda: self._wire.send(place, stored, partial(self._acknowledged, place, sent)))

    def hurry(self) -> None:
        """Nothing: what is stored is reported at once."""

    def _acknowledged(self, place: Slot, sent: list[Any]) -> None:
        """Report a token once all before it in its partition were reported."""
        sent[1] = True
        waiting, stored = self._unacknowledged[place], []
        while waiting and waiting[0][1]:
            stored.append(waiting.popleft()[0])
        self.in_flight -= len(stored)
        if stored:
            self._stored(stored)
        if self._idle is not None and not self.in_flight:
            self._idle.set()

    async def close(self) -> None:
        self._idle = asyncio.Event()
        if self.in_flight:
            await self._idle.wait()


ABORTED: Final = "aborted"


class MemoryTransactions(Transactions):
    """Transactions under one id, with the offsets of one group's member."""

    def __init__(
        self, world: World[Any], process: Process, transactional_id: str, group: str, member: Callable[[], Ticket]
    ) -> None:
        self._world = world
        self._process = process
        self._id = transactional_id
        self._group, self._member = group, member
        self._producer: Any = None
        self.breaks: Callable[[], str] = str  # what becomes of a transaction, as `ABORTED`; see `_break`

    async def open(self) -> None:
        await asyncio.sleep(self._world.latency())
        self._producer = self._process.reach(lambda: self._world.broker.producer(self._id))

    async def write(self, records: Sequence[Outgoing], offsets: Mapping[int, Commit]) -> list[tuple[int, int]]:
        world, reach, ticket = self._world, self._process.reach, self._member()
        places = {partition: (commit.offset, commit.metadata) for partition, commit in offsets.items()}
        written = [((one.topic, one.partition), world.as_stored(one)) for one in records]
        await asyncio.sleep(world.latency())
        for place, one in written:
            reach(partial(world.broker.produce, self._producer, place, one))
        await asyncio.sleep(world.latency())
        breaks = self.breaks()
        self._break(breaks, BEFORE)
        try:
            reach(lambda: self._finish(ticket, places))
        except FencedError:  # the producer, as the next line says, or else the group's member
            reach(lambda: world.broker.abort(self._producer))
            raise AbortedError(f"{self._id}: the group {self._group} refuses the offsets") from None
        self._break(breaks, AFTER)
        await asyncio.sleep(world.latency())
        return [(one.offset, int(1000 * one.appended)) for _, one in written]

    async def hold(self, topic: str) -> None:  # noqa: ARG002 - nothing that is written and taken back is seen
        await asyncio.sleep(self._world.latency())
        self._process.reach(lambda: self._world.broker.abort(self._producer))

    def _finish(self, ticket: Ticket, places: dict[int, tuple[int, str]]) -> None:
        if places:
            ticket.check(places.keys())
        self._world.broker.finish(self._producer, self._group, ticket.number, places)

    def _break(self, breaks: str, moment: str) -> None:
        """Abort where a transaction is to be, or hear nothing of it from `BEFORE` or `AFTER` its end on."""
        if breaks == ABORTED:
            self._process.reach(lambda: self._world.broker.abort(self._producer))
            raise AbortedError(f"{self._id}: the transaction is aborted")
        if breaks == moment:
            raise SilentError(f"{self._id}: nothing is heard of the transaction")


class MemoryFollowing(Following):
    """One partition that a `MemoryLog` reads, a few records at a time."""

    def __init__(
        self,
        world: World[Any],
        process: Process,
        slot: Slot,
        start: int,
        accept: Callable[[Sequence[Record]], object],
        cut: Callable[[Bounds], object] | None,
        trouble: Callable[[BrokerError], object] | None,
    ) -> None:
        self.position = start
        self._world, self._process, self.slot = world, process, slot
        self._accept, self._cut, self._trouble = accept, cut, trouble
        self._wishes: list[tuple[int, Callable[[int], object]]] = []
        self._paused = self._stopped = False
        world.subscribe(process, slot, self.poll)
        process.after(world.latency(), self.poll)

    def when_read(self, then: Callable[[int], object]) -> None:
        def ask() -> None:
            end = self._process.reach(lambda: self._world.broker.end(self.slot))
            if self._stopped:
                then(self.position)
            else:
                self._wishes.append((end, then))
                self._process.after(0.0, self.poll)

        self._process.after(self._world.latency(), ask)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._process.after(0.0, self.poll)

    def stop(self) -> None:
        self._stopped = True
        self._settle()

    def poll(self) -> None:
        """Accept some of what is there, unless it comes late to this process."""
        world = self._world
        wait = world.reads_at(self._process, self.slot, world.now) - world.now
        if self._stopped or self._paused:
            return
        if wait > 0:
            self._process.after(wait, self.poll)
            return
        bounds = world.broker.bounds(self.slot)
        if not bounds.start <= self.position <= bounds.end:
            self._lost(bounds)
            return
        there = list(islice(world.broker.read(self.slot, self.position), _AT_ONCE + 1))
        if there[:_AT_ONCE]:
            self.position = there[:_AT_ONCE][-1].offset + 1
            self._accept([world.as_read(self.slot, one) for one in there[:_AT_ONCE]])
        if len(there) > _AT_ONCE:
            self._process.after(_PAUSE * world.random.random(), self.poll)
        else:
            self.position = max(self.position, world.broker.stable_end(self.slot))
        self._settle()

    def _settle(self) -> None:
        for wish in tuple(self._wishes):
            end, then = wish
            if self._stopped or self.position >= end:
                self._wishes.remove(wish)
                then(min(end, self.position) if self._stopped else end)

    def _lost(self, bounds: Bounds) -> None:
        self._stopped = True
        if self._cut is not None:
            self._cut(bounds)
        elif self._trouble is not None:
            where = "{}[{}]".format(*self.slot)
            self._trouble(BrokerError(f"{where} has offsets {bounds.start} to {bounds.end}, not {self.position}"))


class MemoryLog(Log):
    """Reads the partitions that a process follows. Its topics are there, so it knows no trouble but what they lack."""

    def __init__(self, world: World[Any], process: Process) -> None:
        self._world, self._process = world, process
        self._followed: list[MemoryFollowing] = []

    def follow(
        self,
        slot: Slot,
        start: int | Since | None,
        accept: Callable[[Sequence[Record]], object],
        *,
        cut: Callable[[Bounds], object] | None = None,
        trouble: Callable[[BrokerError], object] | None = None,
    ) -> MemoryFollowing:
        following = self._process.reach(
            lambda: MemoryFollowing(self._world, self._process, slot, self._offset(slot, start), accept, cut, trouble)
        )
        self._followed.append(following)
        return following

    async def close(self) -> None:
        for following in self._followed:
            following.stop()

    def _offset(self, slot: Slot, start: int | Since | None) -> int:
        bounds = self._world.broker.bounds(slot)
        if isinstance(start, Since):
            records = self._world.broker.read(slot, bounds.start)
            return next((one.offset for one in records if one.appended >= start.at), bounds.end)
        return bounds.start if start is None else start


class MemorySpans(Spans):
    """Reads the world's logs again."""

    def __init__(self, world: World[Any], process: Process) -> None:
        self._world, self._process = world, process

    async def bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, Bounds]:
        await asyncio.sleep(self._world.latency())
        broker = self._world.broker
        return self._process.reach(lambda: {partition: broker.bounds((topic, partition)) for partition in partitions})

    async def read(
        self, topic: str, spans: Mapping[int, Bounds], *, values: bool = True
    ) -> AsyncIterator[list[Record]]:
        for partition, span in spans.items():
            slot, start = (topic, partition), span.start
            while start < span.end:
                await asyncio.sleep(self._world.latency())
                found = self._process.reach(partial(self._some, slot, start, span.end, values=values))
                if found:
                    start = found[-1].offset + 1
                    yield found
                elif self._world.broker.stable_end(slot, span.end) >= span.end:
                    break  # else a transaction is open, whose end is waited for

    def _some(self, slot: Slot, start: int, end: int, *, values: bool) -> list[Record]:
        world = self._world
        return [
            world.as_read(slot, one, values=values) for one in islice(world.broker.read(slot, start, end), _AT_ONCE)
        ]

    async def pick(self, topic: str, places: Iterable[tuple[int, int]]) -> dict[tuple[int, int], Record]:
        found = {}
        for partition, offset in places:
            async for records in self.read(topic, {partition: Bounds(offset, offset + 1)}):
                found[partition, offset] = records[0]
        return found

    async def close(self) -> None:
        """Nothing: there is no connection."""
