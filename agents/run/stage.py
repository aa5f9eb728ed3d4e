"""A stage: records in, batches to the model, messages out, offsets to commit.

The way of a record, top to bottom: `accept` receives it, the core deduplicates, joins, admits, routes and queues it,
`_pump` submits batches to workers, `executed` settles their queries, `_emit` sends what they led to, `stored` learns
that the broker has it, `commits` says up to where all is done. The core decides; this decodes, encodes, sends and keeps
time. After every call into the core `_pump` does what the core asks for.

Rules:

* Everything runs on the loop of the process. A call that is made elsewhere comes back to it.
* A chunk counts for the assignment in which it came. What is left of it when partitions are revoked is void: those
  that stay are read on from where their records were accepted.
* A partition that comes is rebuilt before any of its records is delivered, while the others go on. What comes of it
  meanwhile is set aside.
* A message that could not be stored ends the process. What it stands for is not committed, and is done again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.run.alarm import Alarm
from spillway.agents.run.emission import about
from spillway.agents.run.intake import PoisonError
from spillway.lineage import reasons
from spillway.lineage.errors import SpillwayError
from spillway.lineage.ports import Commit, Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from spillway.agents.core.actions import Emit, Executed, Result, Work
    from spillway.agents.core.batching import Batch
    from spillway.agents.core.joins import Fetch
    from spillway.agents.core.policy import StageState
    from spillway.agents.core.request import Loss
    from spillway.agents.core.stage import StageCore
    from spillway.agents.run.emission import Carried
    from spillway.agents.run.stage_context import Context, Dispatch, Workers
    from spillway.lineage.ports import Bounds, Clock, Input, Output, Record

log = logging.getLogger(__name__)

_NOTHING: Final = Commit(0, "")  # of a partition for which nothing was committed
_AT_ONCE: Final = 32  # records decoded before the loop gets to do something else
_EARLY: Final = 10_000  # records that may wait for partitions which are being taken over


class Stage(Owner):
    """One replica of a stage, which owns what its input gives it."""

    def __init__(self, core: StageCore, clock: Clock, context: Context) -> None:
        self._core = core
        self._now = clock.now
        self._context = context
        self._metrics = metrics = context.metrics
        self._tally = context.tally
        self._rereading = context.rereading
        self._rereading.begin(self._fetched, self.crashed)
        self._input: Input
        self._output: Output | None = None
        self._workers: Workers | None = None
        self.extras: Dispatch | None = None  # where the stage has a dispatch
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._room.set()
        self._alarm = Alarm(self._wake)
        self._assignment = 0  # which one this is: what came in an earlier one is void
        self._positions: dict[int, int] = {}  # the next offset to take, by partition that is ready
        self._ready: dict[int, asyncio.Future[None]] = {}  # by partition that is ours: its taking over
        self._early: dict[int, list[tuple[int, Sequence[Record]]]] = {}  # what came before: assignments and records
        self._committed: dict[int, int] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._in_hand = 0  # chunks being accepted
        self.failed: asyncio.Future[None] = self._loop.create_future()  # raises what the process must end for
        metrics.depth = lambda: core.depth
        metrics.limit = lambda: core.limit
        metrics.unmet = lambda: core.unmet
        metrics.received = lambda: core.stats.received
        metrics.duplicates = lambda: core.stats.duplicates

    def start(self, source: Input, output: Output, workers: Workers) -> None:
        """Begin to work with these. `source` may give nothing before it is called."""
        self._input = source
        self._context.inputs.bounds = source.bounds
        self._output = output
        self._workers = workers

    # What comes in --------------------------------------------------------------------------------------------------

    async def accept(self, records: Mapping[int, Sequence[Record]]) -> None:
        """Deliver a chunk's records to the core, as fast as the core has room for them.

        Those of partitions that are being taken over are set aside, as many as may be, and do not hold up the others.
        """
        assignment = self._assignment
        self._in_hand += 1
        try:
            for partition, some in records.items():
                ready = self._ready.get(partition)
                if ready is not None and not ready.done():
                    if not self._stopping and self._set_aside < _EARLY:
                        self._early.setdefault(partition, []).append((assignment, some))
                        continue
                    await asyncio.wait([ready])
                if not await self._accept_partition(assignment, partition, some):
                    return
        finally:
            self._in_hand -= 1

    @property
    def _set_aside(self) -> int:
        return sum(len(records) for early in self._early.values() for _, records in early)

    async def _accept_early(self, partition: int, early: list[tuple[int, Sequence[Record]]]) -> None:
        self._in_hand += 1
        try:
            for assignment, records in early:
                await self._accept_partition(assignment, partition, records)
        finally:
            self._in_hand -= 1

    async def _accept_partition(self, assignment: int, partition: int, records: Sequence[Record]) -> bool:
        """Deliver one partition's records; False when the chunk is void, or the process stops accepting."""
        at = 0
        while at < len(records):
            if not self._may_accept:
                self._room.clear()
                self._look_for_room()
                await self._room.wait()
            if self._stopping or assignment != self._assignment:
                return False
            position = self._positions.get(partition)
            if position is None:
                return True  # not ours; a rebalance is under way
            upto = min(at + _AT_ONCE, len(records))
            for record in records[at:upto]:
                at += 1
                if record.offset >= position:
                    self._positions[partition] = record.offset + 1
                    if not self._deliver(record):
                        await self._retry_with_new_schemas(record)
                        break  # the world may have changed meanwhile
                    if at < upto and not self._may_accept:
                        break
            self._pump()
            if at < len(records):
                await asyncio.sleep(0)
        return True

    @property
    def _may_accept(self) -> bool:
        return self._core.room and (self._output is None or self._output.room)

    def _deliver(self, record: Record) -> bool:
        """Deliver one record to the core; False if its schema is unknown, so that nothing has been done yet."""
        try:
            delivery = self._context.intake.delivery(record)
        except PoisonError as poison:
            if poison.reason == reasons.UNKNOWN_SCHEMA:
                return False
            self._fail(record, poison)
            return True
        now = self._now()
        self._core.deliver(now, delivery)
        took = now - record.timestamp / 1000
        if not delivery.offline:
            self._metrics.intake.observe(took)
            self._metrics.transfer.hear(now, took)
        return True

    async def _retry_with_new_schemas(self, record: Record) -> None:
        """Check once whether the writer has registered its schema; else the record is poison."""
        await self._loop.run_in_executor(None, self._context.reload_schemas)
        if self._positions.get(record.partition) != record.offset + 1:
            return  # its partition went meanwhile, and is read again where it came back
        try:
            self._core.deliver(self._now(), self._context.intake.delivery(record))
        except PoisonError as poison:
            self._fail(record, poison)

    def _fail(self, record: Record, poison: PoisonError) -> None:
        place = record.topic, record.partition, record.offset
        log.warning("%s[%d] offset %d is poison (%s): %s", *place, poison.reason, poison, extra=about(poison.delivery))
        self._core.fail(self._now(), poison.delivery, poison.reason, str(poison))

    # What the core asks for -----------------------------------------------------------------------------------------

    def _pump(self) -> None:
        core, workers, output = self._core, self._workers, self._output
        if workers is None or output is None:
            return
        for batch in core.take_runs():
            runs = workers if batch.worker >= 0 or self.extras is None else self.extras
            runs.submit(batch.worker, batch)
        now = self._now()
        if self.extras is not None:
            self.extras.pump(now)
        if core.hits:
            answering = self._loop.create_task(self._answer(core.take_hits()))
            self._answering.add(answering)
            answering.add_done_callback(self._answering.discard)
        for emit in core.take_emits():
            if not self._emit(now, output, emit):
                return
        if core.reads_again and (fetches := core.take_fetches()):
            self._rereading.ask(fetches)
        if not self._room.is_set():
            self._look_for_room()
        wake = core.next_wake(now)
        if wake is not None:
            self._alarm.within(wake - now)

    def _look_for_room(self) -> None:
        if self._may_accept or self._stopping:
            self._room.set()
        elif self._output is not None:
            self._output.hurry()

    def _emit(self, now: float, output: Output, emit: Emit) -> bool:
        self._tally.emitted(now, emit)
        try:
            message = self._context.emission.message(emit)
        except SpillwayError as error:
            self.crashed(error)
            return False
        output.send(message, emit)
        return True

    async def _answer(self, hits: list[tuple[Work, Any]]) -> None:
        """Encode answers that were known, off the loop, as a stage's own functions may route them."""
        try:
            now = self._now()
            results = await self._loop.run_in_executor(
                None, lambda: [(work, self._context.remembered(work, value, now)) for work, value in hits]
            )
            self._core.answered(self._now(), results)
            self._pump()
        except Exception as error:  # noqa: BLE001 - nothing may be lost in silence
            self.crashed(error)

    def _fetched(self, fetch: Fetch, payload: Carried, loss: Loss | None) -> None:
        self._core.fetched(self._now(), fetch, payload, loss)
        self._pump()

    def _wake(self) -> None:
        self._core.advance(self._now())
        self._pump()

    def executed(self, batch: Batch, done: Executed) -> None:
        now = self._now()
        self._tally.executed(now, batch, done)
        self._core.complete(now, batch, done.results, done.seconds)
        self._pump()
        self._metrics.handoff.observe(self._loop.time() - done.ended)

    # Workers come and go --------------------------------------------------------------------------------

    def now(self) -> float:
        return self._now()

    def attach(self, worker: int) -> None:
        self._metrics.instances += 1
        self._core.attach(self._now(), worker)
        self._pump()

    def drain(self, worker: int) -> bool:
        self._metrics.instances -= 1
        gone = self._core.drain(self._now(), worker)
        self._pump()
        return gone

    def lose(
        self, worker: int, results: Sequence[Result | None], blamed: Collection[int], why: str, *, counted: bool
    ) -> None:
        """Remove a worker that is gone; `counted`: it was not draining."""
        self._metrics.instances -= counted
        self._core.lose(self._now(), worker, results, blamed, why)
        self._pump()

    def tick(self, now: float, states: Mapping[str, Sequence[StageState]]) -> None:
        self._core.tick(now, states)
        self._pump()

    def changed(self, change: Callable[[float], object]) -> None:
        """Change lanes or steps, at this time, and do what follows of it."""
        change(self._now())
        self._pump()

    def durability_changed(self) -> None:
        """Act on what the version logs have learned; without effect where no stage before has a state."""
        self._core.durability_changed(self._now())
        self._pump()

    def stored(self, emits: Sequence[Emit]) -> None:
        """Learn that the broker has these messages, which leads to commits and to room, and to nothing else."""
        self._core.acked_all(emits)
        if not self._room.is_set():
            self._look_for_room()

    # The input's owner ----------------------------------------------------------------------------------------------

    def commits(self) -> dict[int, Commit]:
        """Return what the core has finished, in offset order, with its notes."""
        if self._metrics.waits.due:
            busy = self._context.guard.busy.union(
                *(each.busy for each in (self._workers, self.extras) if each is not None)
            )
            self._metrics.waits.say(self._core.waits(busy))
        if self._output is not None:
            self._output.hurry()
        return self._core.commits()

    def committed(self, offsets: Mapping[int, Commit]) -> None:
        for partition, commit in offsets.items():
            self._core.committed(partition, commit.offset)
            self._committed[partition] = max(commit.offset, self._committed.get(partition, 0))
            self._metrics.committed[partition] = commit.offset

    async def revoked(self) -> None:
        """Void what is under way. What is kept of partitions is let go when it is known that they are not ours."""
        self._assignment += 1

    async def assigned(self, partitions: frozenset[int]) -> dict[int, int]:
        """Let go what is not ours any more; start to rebuild the memory of what is new. What stays, stays as it is.

        Unless somebody else has committed for it: then this replica was thought dead for a while, and starts anew.
        """
        self._assignment += 1
        places = await self._input.positions(sorted(partitions))
        self._context.guard.look({partition: place.offset for partition, place in places.items()})
        now = self._now()
        for partition in list(self._ready):
            theirs = places.get(partition, _NOTHING).offset > self._committed.get(partition, 0)
            if partition not in partitions or theirs:
                self._let_go(now, partition)
        self._pump()
        self._context.own(partitions)
        committed = {partition: places[partition].offset if partition in places else None for partition in partitions}
        # What stays is read on where reading stands: what was taken since its commit need not be in the log any more.
        starts = await self._context.inputs.starts(
            {partition: self._positions.get(partition, committed[partition]) for partition in sorted(partitions)}
        )
        for partition in sorted(starts.keys() - self._ready.keys()):
            start, note = places.get(partition, _NOTHING)
            self._committed[partition] = start
            self._ready[partition] = self._loop.create_task(self._take_over(partition, start, note))
        return starts

    def _let_go(self, now: float, partition: int) -> None:
        self._core.revoke(now, partition)
        self._positions.pop(partition, None)
        self._committed.pop(partition, None)
        self._metrics.committed.pop(partition, None)
        self._early.pop(partition, None)
        ready = self._ready.pop(partition, None)
        if ready is not None:
            ready.cancel()

    async def _take_over(self, partition: int, committed: int, note: str) -> None:
        """Rebuild what was known of a partition, while the group's heartbeats go on, before any record is delivered.

        What the owner before knew to be dead, and committed past, must not count as taken: so the logs come first.
        """
        try:
            await self._context.read_logs()
            spans = self._core.assign(partition, committed, note)
            async for delivery in self._context.memory.read(partition, spans):
                self._core.remember(delivery)
            self._positions[partition] = committed
            while early := self._early.pop(partition, None):
                await self._accept_early(partition, early)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - without its memory the stage must not go on
            self.crashed(error)

    def out_of_range(self, partition: int, position: int, bounds: Bounds) -> int | None:
        return max(position, bounds.start) if self._context.inputs.admits(partition, position, bounds) else None

    def crashed(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    def planning_ended(self, planning: asyncio.Task[None]) -> None:
        """End the process if what exchanges states failed: its policy would go by ever older ones."""
        if not planning.cancelled() and (error := planning.exception()) is not None:
            self.crashed(error)

    def lost(self, text: str) -> None:
        """End the process: a message could not be delivered, and what it stands for must not be committed."""
        self.crashed(SpillwayError(text))

    @property
    def partitions(self) -> Collection[int]:
        """Those whose records are delivered."""
        return self._positions.keys()

    # Stopping -------------------------------------------------------------------------------------------------------

    def stop_taking(self) -> None:
        self._stopping = True
        self._early.clear()
        self._room.set()

    @property
    def idle(self) -> bool:
        """Whether everything that was taken is done, but for parts that wait for others in a join."""
        return self._core.unsettled == 0 and self._in_hand == 0
