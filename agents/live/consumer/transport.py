"""Faust's transport of a stage: librdkafka reads; Faust keeps the application, the agent, the stream and rebalances.

- The agent is given one event for each time that records flow. Its value is a `Flow`, which has records in lists, from
  when reading is resumed until it is stopped: an event for each list cost a fifth of a message's processor time.
- Offsets and their notes come from the stage's own tracker. Faust's bookkeeping of acks commits past holes, which loses
  what is in the hole.
- Membership is static, partitions are dealt by instance id, and a replica that stops for good leaves its group.

Positions. After every rebalance each partition is read from where its owner says, which has judged whether the log has
that position (`spillway.agents.run.inputs`). All that was fetched before is void then: a chunk comes with the epoch in
which it was read, which changes whenever the flow stops, and is thrown away when it is not the current one. Nothing is
ever reset to where the log happens to begin: a position out of range is judged, and its partition stopped if records
were lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from faust.events import Event
from faust.transport import consumer as base
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage

from spillway.agents.live.consumer.reader import GroupReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spillway.agents.live.consumer.reader import Parts
    from spillway.agents.live.groups import Membership
    from spillway.lineage.ports import Owner


class Flow:
    """Chunks of one epoch, of which the agent takes one after another: records by partition, in offset order."""

    def __init__(self) -> None:
        self._chunks: deque[Parts] = deque()
        self._woken = asyncio.Event()
        self._over = False
        self.begun = False  # the agent has it

    def put(self, parts: Parts) -> None:
        self._chunks.append(parts)
        self._woken.set()

    def end(self) -> int:
        """End it; return how many chunks are void with it."""
        void = len(self._chunks)
        self._chunks.clear()
        self._over = True
        self._woken.set()
        return void

    async def next(self) -> Parts | None:
        """Wait for the next chunk; None once the flow is over."""
        self.begun = True
        while not self._chunks:
            if self._over:
                return None
            self._woken.clear()
            await self._woken.wait()
        return self._chunks.popleft()


class StageConsumer(base.Consumer):  # type: ignore[misc]
    """The consumer's half on the application's loop."""

    reader: GroupReader

    def __init__(self, transport: StageTransport, *args: Any, **kwargs: Any) -> None:
        self.owner: Owner = transport.owner  # type: ignore[assignment] # there is one wherever a consumer is made
        self.epoch = 0
        self._closed_flow = False
        self._mine: set[TP] = set()
        self._starts: Mapping[int, int] | None = None  # where to read on, of what is not stopped; None: not judged yet
        self._rebalancing = asyncio.Lock()
        self._looking: set[asyncio.Task[None]] = set()  # at partitions that are out of range
        self.taken = 0  # chunks that the agent has picked up, or that were void
        self._flow = Flow()  # of the epoch that is read, or was read last
        self._read = -1  # the last epoch that the reader was told to read
        super().__init__(transport, *args, **kwargs)
        self.flow_active = False  # until the first assignment has been judged

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group. A stage has one topic, and Faust subscribes to it once."""
        (self.topic,) = topics
        self.reader = GroupReader(self.transport.membership, self.topic, self)

    async def on_stop(self) -> None:
        await super().on_stop()
        if hasattr(self, "reader"):
            await self.reader.stop()

    def assignment(self) -> set[TP]:
        return self._mine

    # -- flow ------------------------------------------------------------------------------------------------------

    def stop_flow(self) -> None:
        """Stop taking records; everything taken and not yet with the stage is void."""
        self.epoch += 1
        self.taken += self._flow.end()
        super().stop_flow()

    def resume_flow(self) -> None:
        """Take records again, from the positions that the owner has given.

        Faust has emptied the agent's channel before this: a flow that the agent does not have yet is put there again,
        where a recovery of Faust's that an assignment has overtaken resumes the flow, too.
        """
        super().resume_flow()
        if self._starts is None or self._closed_flow:
            return
        if self._read != self.epoch:
            self._read = self.epoch
            self._flow = Flow()
            self.reader.read(self.epoch, self._starts)
        if self._mine and not self._flow.begun:
            self._put(min(self._mine))

    def _put(self, tp: TP) -> None:
        """Put the flow into the agent's channel, in the name of one of its partitions, as Faust's conductor does."""
        message = ConsumerMessage(
            *(tp.topic, tp.partition, 0, 0.0, 0),
            *((), None, None, None, -1, -1, tp),
            generation_id=self.app.consumer_generation_id,
        )
        message.tracked = True  # acks are the tracker's affair
        for channel in self.app.topics._tp_index.get(tp, ()):  # noqa: SLF001
            event = Event(self.app, None, self._flow, {}, message)
            channel.queue.put_nowait_enhanced(event, on_pressure_high=_nothing, on_pressure_drop=_nothing)

    def close_flow(self) -> None:
        self._closed_flow = True
        self.stop_flow()

    async def _drain_messages(self, fetcher: Any) -> None:
        """Nothing to do for Faust's fetcher: the reader hands chunks over as the agent takes them."""
        await self.wait(fetcher._stopped)  # noqa: SLF001 - Faust's own way of waiting for its fetcher's end

    def receive(self, epoch: int, parts: Parts) -> None:
        """Pass a chunk on to the agent, unless the flow has stopped since it was fetched."""
        if epoch == self.epoch:
            self._flow.put(parts)
        else:
            self._took()

    def _took(self) -> None:
        self.taken += 1
        self.reader.wake()

    async def serve(self, flow: Flow) -> None:
        """Hand the chunks of a flow to the owner, one after another; the next may come while one is worked on."""
        while (parts := await flow.next()) is not None:
            self._took()
            await self.owner.accept(dict(parts))

    def out_of_range(self, epoch: int, partition: int, position: int) -> None:
        """Have a partition judged whose log does not have its position: it is stopped, or read on."""
        looking = self.loop.create_task(self._look(epoch, partition, position))
        self._looking.add(looking)
        looking.add_done_callback(self._looking.discard)

    async def _look(self, epoch: int, partition: int, position: int) -> None:
        try:
            bounds = (await self.reader.bounds([partition]))[partition]
            if epoch == self.epoch:  # else it is judged with its next assignment
                self.reader.read_on(epoch, partition, self.owner.out_of_range(partition, position, bounds))
        except Exception as error:  # noqa: BLE001 - a partition must not stand still without a word
            self.owner.crashed(error)

    def crashed(self, error: BaseException) -> None:
        self.owner.crashed(error)

    # -- rebalance -------------------------------------------------------------------------------------------------

    async def revoked(self) -> None:
        async with self._rebalancing:
            self.app.on_rebalance_start()
            self._starts = None
            self.stop_flow()
            await self.owner.revoked()
            await self.force_commit()  # `commit` would leave it to one that is under way, and that has failed
            await self.on_partitions_revoked(set(self._mine))
            self._mine = set()

    async def assigned(self, partitions: frozenset[int]) -> None:
        """Take partitions over, through Faust, which resumes the flow in the end."""
        async with self._rebalancing:
            if not self.app.rebalancing:  # the first time nothing is revoked
                self.app.on_rebalance_start()
            self._starts = None
            self.stop_flow()
            self._starts = await self.owner.assigned(partitions)
            self._mine = {TP(self.topic, partition) for partition in partitions}
            self.app.consumer_generation_id += 1
            await self.on_partitions_assigned(set(self._mine), self.app.consumer_generation_id)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Say where reading goes on."""
        return {TP(self.topic, partition): offset for partition, offset in (self._starts or {}).items()}

    # -- commit ----------------------------------------------------------------------------------------------------

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:  # noqa: ARG002, FBT001, FBT002 - Faust's signature
        commits = self.owner.commits()
        offsets = {partition: commits[partition] for _, partition in self._mine if partition in commits}
        if not offsets:
            return False
        done = await self.reader.commit(offsets)
        if done:
            self.owner.committed(offsets)
        return done

    async def verify_all_partitions_active(self) -> None:
        """Nothing: Faust looks for acks that stand still, and acks are the tracker's affair."""

    # -- what only tables, plain topics and Faust's own drain ask for -----------------------------------------------

    def _unused(self, *_arguments: Any, **_options: Any) -> Any:
        raise NotImplementedError("a stage's consumer has no tables and reads its only topic in chunks")

    create_topic = _commit = _seek = _getmany = _to_message = _new_topicpartition = _unused
    position = seek_wait = highwater = highwaters = earliest_offsets = topic_partitions = key_partition = _unused

    def close(self) -> None:
        """Nothing: `on_stop` ends the reader."""


class StageTransport(driver.Transport):  # type: ignore[misc]
    """Install with `app.transport = StageTransport(...)` before any topic of the app is used."""

    Consumer = StageConsumer

    def __init__(self, url: Any, app: Any, *, membership: Membership, owner: Owner | None) -> None:
        super().__init__(url, app)
        self.membership = membership
        self.owner = owner


def _nothing() -> None:
    """Pressure is what the reader's `_AHEAD` bounds."""
