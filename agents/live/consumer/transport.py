"""Faust's Kafka transport, with the parts replaced that a stage cannot live with.

Faust keeps the application, the agent, the group membership and the rebalance protocol. Replaced are:

- fetching: records go from aiokafka to the agent in lists (a `Chunk` is the value of one Faust event), instead of one
  task switch and four futures per record;
- committing: offsets and their metadata come from the stage's own tracker. Faust's bookkeeping of acks commits past
  holes, which loses what is in the hole;
- joining and leaving: static membership, partitions by instance (see `assignor`), and an explicit LeaveGroup when a
  replica stops for good.

Positions. After every rebalance each partition is sought to where its owner says, which has judged whether the log has
that position (`agents.live.inputs`). All that was fetched before is void then: a chunk carries the flow's epoch, which
changes whenever the flow stops, and is thrown away when it is not the current one. Nothing is ever reset to where the
log happens to begin: a position out of range is judged, and its partition stopped if records were lost.
"""
# ruff: noqa: SLF001 - faust and aiokafka have no public way to do what this replaces; their versions are pinned

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from faust.events import Event
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage

from agents.live.consumer.thread import StageConsumerThread

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from aiokafka.structs import ConsumerRecord

    from agents.live.consumer.fetching import Drained
    from agents.live.groups import Membership
    from agents.live.inputs import Inputs


class Chunk(NamedTuple):
    """Records of one or more partitions, in offset order within each; void once the flow's epoch has moved on."""

    epoch: int
    parts: list[tuple[int, list[ConsumerRecord]]]


class Commit(NamedTuple):
    """What to commit for one partition: the next offset to read, and a note for whoever reads on from there."""

    offset: int
    metadata: str


class Owner(Protocol):
    """Whom the transport serves: a stage's replica or member. All calls come on the application's loop."""

    inputs: Inputs

    def commits(self) -> Mapping[int, Commit]:
        """Say what may be committed now, by partition; what has been committed before need not be repeated."""
        ...

    def committed(self, offsets: Mapping[int, Commit]) -> None: ...

    async def assigned(self, partitions: frozenset[int]) -> Mapping[int, int]:
        """Take over exactly these partitions; no record of theirs has been delivered in the new epoch yet.

        It returns where each is read on, and has judged them (`inputs.starts`): one that is stopped is missing.
        """
        ...

    def crashed(self, error: BaseException) -> None: ...


class StageConsumer(driver.Consumer):  # type: ignore[misc]
    """The consumer's half on the application's loop."""

    def __init__(self, transport: StageTransport, *args: Any, **kwargs: Any) -> None:
        self.owner: Owner = transport.owner  # type: ignore[assignment] # there is one wherever a consumer is made
        self.epoch = 0
        self._closed_flow = False
        self._starts: Mapping[int, int] = {}  # where to read on, of the partitions that are not stopped
        self._looking: set[asyncio.Task[None]] = set()  # at partitions that are out of range
        self._active_snapshot: frozenset[TopicPartition] = frozenset()
        self.taken = 0  # chunks that the agent has picked up, or that were void
        self._waiting = 0  # chunks in the agent's channel
        super().__init__(transport, *args, **kwargs)
        self.flow_active = False  # until the first assignment has been sought to its committed offsets

    def _new_consumer_thread(self) -> StageConsumerThread:
        return StageConsumerThread(self, loop=self.loop, beacon=self.beacon)

    # -- flow ------------------------------------------------------------------------------------------------------

    def stop_flow(self) -> None:
        """Stop taking records; everything taken and not yet with the stage is void."""
        self.epoch += 1
        super().stop_flow()

    def resume_flow(self) -> None:
        """Take records again, from the positions that were sought meanwhile.

        Faust has emptied the agent's channel before this, untold; what waited there makes room for what comes now.
        """
        self.taken += self._waiting
        self._waiting = 0
        self._active_snapshot = frozenset(
            TopicPartition(tp.topic, tp.partition)
            for tp in self._get_active_partitions()
            if tp.partition not in self.owner.inputs.stopped
        )
        super().resume_flow()
        self._thread.wake()

    def close_flow(self) -> None:
        self._closed_flow = True
        self.stop_flow()

    def active_in(self, epoch: int) -> frozenset[TopicPartition]:
        """Say which partitions may be taken from; none once the epoch is over. Asked by the consumer's thread."""
        going = self.flow_active and self.epoch == epoch and not self._closed_flow
        return self._active_snapshot if going else frozenset()

    async def _drain_messages(self, fetcher: Any) -> None:
        """Nothing to do for Faust's fetcher: the consumer's thread hands chunks over as the agent takes them."""
        await self.wait(fetcher._stopped)

    def receive(self, epoch: int, drained: Drained) -> None:
        """Put a chunk into the agent's channel, unless the flow has stopped since it was fetched."""
        first = next(iter(drained))
        channels = self.app.topics._tp_index.get(TP(*first), ())
        if epoch != self.epoch or not channels:
            self.taken += 1
            self._thread.wake()
            return
        record = drained[first][0]
        message = ConsumerMessage(
            *(first.topic, first.partition, record.offset, record.timestamp / 1000, record.timestamp_type),
            *((), None, None, None, -1, -1, TP(*first)),
            generation_id=self.app.consumer_generation_id,
        )
        message.tracked = True  # acks are the tracker's affair
        chunk = Chunk(epoch, [(tp.partition, records) for tp, records in drained.items()])
        self._waiting += 1
        for channel in channels:
            event = Event(self.app, None, chunk, {}, message)
            channel.queue.put_nowait_enhanced(event, on_pressure_high=_nothing, on_pressure_drop=_nothing)

    def picked_up(self) -> None:
        """Let the next chunk come. The agent calls it when it takes one."""
        self._waiting -= 1
        self.taken += 1
        self._thread.wake()

    def out_of_range(self, epoch: int, tp: TopicPartition, position: int) -> None:
        """Have a partition judged whose log does not have its position: it is stopped, or read on."""
        looking = self.loop.create_task(self._look(epoch, tp, position))
        self._looking.add(looking)
        looking.add_done_callback(self._looking.discard)

    async def _look(self, epoch: int, tp: TopicPartition, position: int) -> None:
        try:
            bounds = (await self._thread.bounds([tp]))[tp.partition]
            if epoch != self.epoch:
                return  # it is judged with its next assignment
            if self.owner.inputs.admits(tp.partition, position, bounds):
                await self._thread.call_thread(self._seek_in_thread, tp, max(position, bounds.start))
            else:
                self._active_snapshot -= {tp}
        except Exception as error:  # noqa: BLE001 - a partition must not stand still without a word
            self.owner.crashed(error)

    def crashed(self, error: BaseException) -> None:
        self.owner.crashed(error)

    # -- rebalance -------------------------------------------------------------------------------------------------

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        self.stop_flow()
        await self.commit()
        await super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        self.stop_flow()
        try:
            self._starts = await self.owner.assigned(frozenset(tp.partition for tp in assigned))
        except Exception as error:
            self.owner.crashed(error)
            raise
        await super().on_partitions_assigned(assigned, generation_id)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        offsets: Mapping[TP, int] = await super().seek_to_committed()
        told = {
            TP(tp.topic, tp.partition): self._starts[tp.partition] for tp in offsets if tp.partition in self._starts
        }
        for tp, offset in told.items():
            await self._thread.call_thread(self._seek_in_thread, tp, offset)
        return {**offsets, **told}

    async def _seek_in_thread(self, tp: TP, offset: int) -> None:
        self._thread._ensure_consumer().seek(TopicPartition(tp.topic, tp.partition), offset)

    # -- commit ----------------------------------------------------------------------------------------------------

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:  # noqa: ARG002, FBT001, FBT002 - Faust's signature
        commits = self.owner.commits()
        mine = {tp.partition: tp for tp in self.assignment()}
        offsets = {partition: commit for partition, commit in commits.items() if partition in mine}
        if not offsets:
            return False
        thread: StageConsumerThread = self._thread
        done = await thread.commit_metadata(
            {
                TopicPartition(mine[partition].topic, partition): OffsetAndMetadata(commit.offset, commit.metadata)
                for partition, commit in offsets.items()
            }
        )
        if done:
            self.owner.committed(offsets)
        return done


class StageTransport(driver.Transport):  # type: ignore[misc]
    """Install with `app.transport = StageTransport(...)` before any topic of the app is used."""

    Consumer = StageConsumer

    def __init__(self, url: Any, app: Any, *, membership: Membership, owner: Owner | None) -> None:
        super().__init__(url, app)
        self.membership = membership
        self.owner = owner


def _nothing() -> None:
    """Pressure is what the thread's `_AHEAD` bounds."""
