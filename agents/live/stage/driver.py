"""Between Kafka and a stage's core: records in, batches to the model, messages out, offsets to commit.

Everything here runs on the application's loop. The core decides; the driver decodes, encodes, sends, and keeps time.
After every call into the core `_pump` does what the core asks for.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from spillway.agents.live.clock import Alarm
from spillway.agents.live.stage.emission import about
from spillway.agents.live.stage.guard import Guard
from spillway.agents.live.stage.intake import PoisonError
from spillway.lineage import reasons
from spillway.lineage.errors import SpillwayError
from spillway.lineage.ports import Commit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from spillway.agents.core.actions import Emit, Result, Work
    from spillway.agents.core.batching import Batch
    from spillway.agents.core.deaths import Place
    from spillway.agents.core.joins import Fetch
    from spillway.agents.core.policy import StageState
    from spillway.agents.core.request import Loss
    from spillway.agents.core.stage import StageCore
    from spillway.agents.live.clock import Clock
    from spillway.agents.live.consumer.transport import Chunk
    from spillway.agents.live.inputs import Inputs
    from spillway.agents.live.metrics import StageMetrics
    from spillway.agents.live.output import Output
    from spillway.agents.live.stage.batch_work import Executed
    from spillway.agents.live.stage.emission import Carried, Emission
    from spillway.agents.live.stage.extras import Extras
    from spillway.agents.live.stage.intake import Intake
    from spillway.agents.live.stage.memory import Memory, Rereading
    from spillway.agents.live.stage.tally import Tally
    from spillway.lineage.ports import Record

log = logging.getLogger(__name__)

_NONE = (0, "")  # the place of a partition for which nothing was committed
_AT_ONCE = 32  # records decoded before the loop gets to do something else
_EARLY = 10_000  # records that may wait for partitions which are being taken over


async def _nothing() -> None:
    """Read no logs."""


class Workers(Protocol):
    """Who runs batches: threads (`live.stage.threads`) or processes (`live.stage.crew`)."""

    @property
    def busy(self) -> set[Place]: ...

    def submit(self, worker: int, batch: Batch, /) -> None: ...

    def resize(self, count: int, /) -> None: ...

    def close(self, timeout: float, /) -> bool: ...


class StageDriver:
    """Drives the core of one stage replica. It is the transport's `Owner`."""

    def __init__(
        self,
        core: StageCore,
        *,
        clock: Clock,
        intake: Intake,
        emission: Emission,
        memory: Memory,
        metrics: StageMetrics,
        tally: Tally,
        inputs: Inputs,
        rereading: Rereading,
        reload_schemas: Callable[[], bool],
        read_logs: Callable[[], Awaitable[None]] = _nothing,
        own: Callable[[Collection[int]], object] = bool,
    ) -> None:
        """`reload_schemas` looks for writers' schemas that are not known yet, off the loop; True if it found one.

        `read_logs` reads the version logs, where the stage goes by any, to the ends that they have from now on.
        `own` hears which partitions are this replica's, before it reads them.
        """
        self._core = core
        self._clock = clock
        self._intake = intake
        self._emission = emission
        self._memory = memory
        self._metrics = metrics
        self._tally = tally
        self.inputs = inputs
        self._rereading = rereading
        rereading.begin(self._fetched, self.crashed)
        self._reload_schemas = reload_schemas
        self._read_logs = read_logs
        self._own = own
        self._output: Output | None = None
        self._workers: Workers | None = None
        self.extras: Extras | None = None  # where the stage has a dispatch
        self._guard = Guard()
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._room.set()
        self._alarm = Alarm(self._wake)
        self._positions: dict[int, int] = {}  # the next offset to take, by partition that is ready
        self._ready: dict[int, asyncio.Future[None]] = {}  # by partition that is ours: its taking over
        self._early: dict[int, list[tuple[int, list[Record]]]] = {}  # what came before: epochs and records
        self._committed: dict[int, int] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._in_hand = 0  # chunks being taken
        self._epoch: Callable[[], int] = int
        self.failed: asyncio.Future[None] = self._loop.create_future()  # raises what the process must end for
        metrics.depth = lambda: core.depth
        metrics.limit = lambda: core.limit
        metrics.unmet = lambda: core.unmet
        metrics.received = lambda: core.stats.received
        metrics.duplicates = lambda: core.stats.duplicates

    def start(
        self,
        output: Output,
        workers: Workers,
        epoch: Callable[[], int],
        guard: Guard,
        remembered: Callable[[Work, Any, float], Result],
    ) -> None:
        """Say where messages and batches go, how to ask the transport for its epoch, and who guards the models.

        `remembered` makes the result of a request whose answer was known.
        """
        self._guard = guard
        self._remembered = remembered
        self._output = output
        self._workers = workers
        self._epoch = epoch

    # What comes in --------------------------------------------------------------------------------------------------

    async def take(self, chunk: Chunk) -> None:
        """Deliver a chunk's records to the core, as fast as the core has room for them.

        Those of partitions that are being taken over are set aside, as many as may be, and do not hold up the others.
        """
        self._in_hand += 1
        try:
            for partition, records in chunk.parts:
                ready = self._ready.get(partition)
                if ready is not None and not ready.done():
                    if not self._stopping and self._set_aside < _EARLY:
                        self._early.setdefault(partition, []).append((chunk.epoch, records))
                        continue
                    await asyncio.wait([ready])
                if not await self._take_partition(chunk.epoch, partition, records):
                    return
        finally:
            self._in_hand -= 1

    @property
    def _set_aside(self) -> int:
        return sum(len(records) for early in self._early.values() for _, records in early)

    async def _take_early(self, partition: int, early: list[tuple[int, list[Record]]]) -> None:
        self._in_hand += 1
        try:
            for epoch, records in early:
                await self._take_partition(epoch, partition, records)
        finally:
            self._in_hand -= 1

    async def _take_partition(self, epoch: int, partition: int, records: list[Record]) -> bool:
        """Deliver one partition's records; False when the chunk is void, or the process stops taking."""
        at = 0
        while at < len(records):
            if not self._may_take:
                self._room.clear()
                await self._room.wait()
            if self._stopping or epoch != self._epoch():
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
                    if not self._may_take:
                        break
            self._pump()
            if at < len(records):
                await asyncio.sleep(0)
        return True

    @property
    def _may_take(self) -> bool:
        return self._core.room and (self._output is None or self._output.room)

    def _deliver(self, record: Record) -> bool:
        """Give one record to the core; False if its schema is unknown, so that nothing has been done yet."""
        try:
            delivery = self._intake.delivery(record)
        except PoisonError as poison:
            if poison.reason == reasons.UNKNOWN_SCHEMA:
                return False
            self._fail(poison)
            return True
        now = self._clock()
        self._core.deliver(now, delivery)
        took = now - record.timestamp / 1000
        if not delivery.offline:
            self._metrics.intake.observe(took)
            self._metrics.transfer.hear(now, took)
        return True

    async def _retry_with_new_schemas(self, record: Record) -> None:
        """Look once whether the writer has registered its schema; else the record is poison."""
        await self._loop.run_in_executor(None, self._reload_schemas)
        try:
            self._core.deliver(self._clock(), self._intake.delivery(record))
        except PoisonError as poison:
            self._fail(poison)

    def _fail(self, poison: PoisonError) -> None:
        place, of = _place(poison), about(poison.delivery)
        log.warning("%s[%d] offset %d is poison (%s): %s", *place, poison.reason, poison, extra=of)
        self._core.fail(self._clock(), poison.delivery, poison.reason, str(poison))

    # What the core asks for -----------------------------------------------------------------------------------------

    def _pump(self) -> None:
        core, workers, output = self._core, self._workers, self._output
        if workers is None or output is None:
            return
        for batch in core.take_runs():
            workers.submit(batch.worker, batch)
        if self.extras is not None:
            self.extras.pump()
        hits = core.take_hits()
        if hits:
            answering = self._loop.create_task(self._answer(hits))
            self._answering.add(answering)
            answering.add_done_callback(self._answering.discard)
        for emit in core.take_emits():
            self._tally.emitted(self._clock(), emit)
            try:
                message = self._emission.message(emit)
            except SpillwayError as error:
                self.crashed(error)
                return
            output.send(*message, emit)
        self._rereading.ask(core.take_fetches())
        if not self._room.is_set() and (self._may_take or self._stopping):
            self._room.set()
        now = self._clock()
        wake = self._core.next_wake(now)
        if wake is not None:
            self._alarm.within(wake - now)

    async def _answer(self, hits: list[tuple[Work, Any]]) -> None:
        """Encode answers that were known, off the loop, as a stage's own functions may route them."""
        try:
            now = self._clock()
            results = await self._loop.run_in_executor(
                None, lambda: [(work, self._remembered(work, value, now)) for work, value in hits]
            )
        except Exception as error:  # noqa: BLE001 - nothing may be lost in silence
            self.crashed(error)
            return
        self._core.answered(self._clock(), results)
        self._pump()

    def _fetched(self, fetch: Fetch, payload: Carried, loss: Loss | None) -> None:
        self._core.fetched(self._clock(), fetch, payload, loss)
        self._pump()

    def _wake(self) -> None:
        self._core.advance(self._clock())
        self._pump()

    def executed(self, batch: Batch, done: Executed) -> None:
        now = self._clock()
        self._tally.executed(now, batch, done)
        self._core.complete(now, batch, done.results, done.seconds)
        self._pump()
        self._metrics.handoff.observe(self._loop.time() - done.ended)

    def recovered(self, batch: Batch, results: Sequence[Result | None]) -> None:
        """Take results that a dispatch made for a batch."""
        self._core.recovered(self._clock(), batch, results)
        self._pump()

    # Workers come and go --------------------------------------------------------------------------------

    def now(self) -> float:
        return self._clock()

    def attach(self, worker: int) -> None:
        self._metrics.instances += 1
        self._core.attach(self._clock(), worker)
        self._pump()

    def drain(self, worker: int) -> bool:
        self._metrics.instances -= 1
        gone = self._core.drain(self._clock(), worker)
        self._pump()
        return gone

    def lose(
        self, worker: int, results: Sequence[Result | None], blamed: Collection[int], why: str, *, counted: bool
    ) -> None:
        """Take note that a worker is gone; `counted`: it was not draining."""
        self._metrics.instances -= counted
        self._core.lose(self._clock(), worker, results, blamed, why)
        self._pump()

    def tick(self, now: float, states: Mapping[str, Sequence[StageState]]) -> None:
        self._core.tick(now, states)
        self._pump()

    def changed(self, change: Callable[[float], object]) -> None:
        """Have lanes change, at this time, and do what follows of it."""
        change(self._clock())
        self._pump()

    def durability_changed(self) -> None:
        """Look at what the version logs have learned; without effect where no stage before has a state."""
        self._core.durability_changed(self._clock())
        self._pump()

    def stored(self, emits: Sequence[Emit]) -> None:
        self._core.acked_all(emits)
        self._pump()

    # The transport's owner ------------------------------------------------------------------------------------------

    def commits(self) -> dict[int, Commit]:
        """Give what the core has finished, in offset order, with its notes."""
        self._clock.follow()
        if self._metrics.waits.due:
            busy = self._guard.busy if self._workers is None else self._guard.busy | self._workers.busy
            self._metrics.waits.say(self._core.waits(busy))
        return {partition: Commit(offset, note) for partition, (offset, note) in self._core.commits().items()}

    def committed(self, offsets: Mapping[int, Commit]) -> None:
        for partition, commit in offsets.items():
            self._core.committed(partition, commit.offset)
            self._committed[partition] = max(commit.offset, self._committed.get(partition, 0))
            self._metrics.committed[partition] = commit.offset

    async def assigned(self, partitions: frozenset[int]) -> dict[int, int]:
        """Let go what is not ours any more; start to rebuild the memory of what is new. What stays, stays as it is.

        Unless somebody else has committed for it: then this replica was thought dead for a while, and starts anew.
        """
        places = await self._memory.places(sorted(partitions))
        self._guard.look({partition: committed for partition, (committed, _) in places.items()})
        now = self._clock()
        for partition in list(self._ready):
            if partition not in partitions or places.get(partition, _NONE)[0] > self._committed.get(partition, 0):
                self._let_go(now, partition)
        self._pump()
        self._own(partitions)
        committed = {partition: places[partition][0] if partition in places else None for partition in partitions}
        # What stays is read on where reading stands: what was taken since its commit need not be in the log any more.
        starts = await self.inputs.starts({p: self._positions.get(p, committed[p]) for p in sorted(partitions)})
        for partition in sorted(starts.keys() - self._ready.keys()):
            start, note = places.get(partition, _NONE)
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
            await self._read_logs()
            spans = self._core.assign(partition, committed, note)
            async for delivery in self._memory.read(partition, spans):
                self._core.remember(delivery)
            self._positions[partition] = committed
            while early := self._early.pop(partition, None):
                await self._take_early(partition, early)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - without its memory the stage must not go on
            self.crashed(error)

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

    # Stopping -------------------------------------------------------------------------------------------------------

    def stop_taking(self) -> None:
        self._stopping = True
        self._early.clear()
        self._room.set()

    @property
    def idle(self) -> bool:
        """Whether everything that was taken is done, but for parts that wait for others in a join."""
        return self._core.unsettled == 0 and self._in_hand == 0


def _place(poison: PoisonError) -> tuple[Any, ...]:
    record = poison.delivery.payload.record
    return record.topic, record.partition, record.offset
