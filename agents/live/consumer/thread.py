"""The thread of a stage's consumer: it fetches, heartbeats and commits, beside the application's loop.

A chunk is handed over when the agent has room for it; until then the records stay where aiokafka has put them.
"""
# ruff: noqa: SLF001 - aiokafka has no public way to do what this replaces; its version is pinned
# ruff: noqa: SLF001 - faust and aiokafka have no public way to do what this replaces; their versions are pinned

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.conn import CloseReason
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    GroupCoordinatorNotAvailableError,
    IllegalStateError,
    KafkaTimeoutError,
    RequestTimedOutError,
)
from faust.transport.drivers import aiokafka as driver

from agents.live.consumer.fetching import Drain
from checkpoint.inputs import Bounds
from lineage.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from aiokafka import AIOKafkaClient
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.conn import AIOKafkaConnection
    from aiokafka.structs import OffsetAndMetadata
    from faust.types import TP

    from agents.live.consumer.fetching import Drained
    from agents.live.groups import Membership

log = logging.getLogger(__name__)


# Hanging up on a broker that stands still: connected, but without a byte of an answer.
#
# aiokafka waits 40 s for each answer and asks nobody else meanwhile, while the cluster has long elected other leaders.
# An answer that comes slowly is waited for as long as bytes of it arrive. What the broker holds back on purpose, until
# all members of a group have come, is waited for as aiokafka does.

SILENT_SECONDS: Final = 6.0  # a broker may take 5 s to say that too few replicas have taken an offset
_HELD_BACK: Final = ("JoinGroup", "SyncGroup")


def hang_up_on_silence(client: AIOKafkaClient, seconds: float = SILENT_SECONDS) -> None:
    """Have every connection of the client be given up after `seconds` in which an answer was due and nothing came."""
    original = client._get_conn

    async def connection(node: Any, **options: Any) -> Any:
        try:
            made = await asyncio.wait_for(original(node, **options), seconds)
        except TimeoutError:
            log.warning("node %s does not answer: another is asked where the partitions are", node)
            client.force_metadata_update()
            return None
        if made is not None and not getattr(made.send, "bounded", False):
            made.send = _bounded(made, made.send, seconds)
        return made

    client._get_conn = connection


def _bounded(
    connection: AIOKafkaConnection, original: Callable[..., Awaitable[Any]], seconds: float
) -> Callable[..., Awaitable[Any]]:
    async def answer(request: Any, waiting: asyncio.Future[Any]) -> Any:
        heard = _heard(connection)
        try:
            while not await _came(waiting, seconds):
                before, heard = heard, _heard(connection)
                if heard == before:
                    log.warning("%s:%s is silent: hanging up", connection.host, connection.port)
                    connection.close(reason=CloseReason.CONNECTION_TIMEOUT)
                    raise RequestTimedOutError(f"{type(request).__name__}: nothing came for {seconds:g} s")
        finally:
            if not waiting.done():
                waiting.cancel()
        return waiting.result()

    def send(request: Any, expect_response: bool = True) -> Awaitable[Any]:  # noqa: FBT001, FBT002 - aiokafka's
        sent = original(request, expect_response=expect_response)
        if not expect_response or type(request).__name__.startswith(_HELD_BACK):
            return sent
        return answer(request, asyncio.ensure_future(sent))

    send.bounded = True  # type: ignore[attr-defined]
    return send


async def _came(waiting: asyncio.Future[Any], seconds: float) -> bool:
    return bool((await asyncio.wait({waiting}, timeout=seconds))[0])


def _heard(connection: AIOKafkaConnection) -> tuple[Any, int]:
    """What changes with each byte that comes: the answer that is due next, and how much of it is there."""
    due = connection._requests[0][0] if connection._requests else None
    return due, len(connection._reader._buffer) if connection._reader is not None else 0


# What aiokafka does not ask again by itself, while the cluster has no broker to name for a moment.
#
# A cluster whose only broker is fenced, as it starts or after it has stood still for longer than its session, answers
# requests for metadata, but names no broker. A client that starts just then goes on without: it ends where it looks for
# its group's coordinator, and a leader that knows no partitions deals none, to nobody, until the next regular refresh.


def look_up_patiently(client: AIOKafkaClient) -> None:
    """Have a coordinator's lookup fail, while no broker is known, in the way after which aiokafka tries again."""
    original = client.coordinator_lookup

    async def lookup(kind: Any, key: str) -> Any:
        if client.get_random_node() is None:
            raise GroupCoordinatorNotAvailableError
        return await original(kind, key)

    client.coordinator_lookup = lookup


async def keep_known(client: AIOKafkaClient, topics: Callable[[], Iterable[str]], period: float = 1.0) -> None:
    """Ask for metadata again each `period` seconds while no partition of a topic is known; ends when cancelled.

    Once they are, aiokafka notices that the topic has changed, and the group deals them.
    """
    while True:
        if not all(client.cluster.partitions_for_topic(topic) for topic in topics()):
            await client.force_metadata_update()
        await asyncio.sleep(period)


# Which replica of a stage gets which partitions: the same ones every time.
#
# aiokafka's assignors sort members by member id, which changes at every join, so that one replica's restart reshuffles
# all partitions. Here members are told apart by their static instance id, which each sends along as its user data.

_VERSION = 0


class InstanceAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """Round-robin over the instances of a group, in the order of their instance ids.

    A group may leave partitions alone: a member of a shard is a group of its own, and reads the shard's.
    """

    name = "spillway-instances"

    def __init__(self, instance: str, reads: Callable[[int], bool] | None = None) -> None:
        self._instance = instance.encode()
        self._reads = reads

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return ConsumerProtocolMemberMetadata(_VERSION, sorted(topics), self._instance)

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        ordered = sorted(members, key=lambda member: (natural(bytes(members[member].user_data or b"")), member))
        shares: dict[str, dict[str, list[int]]] = {member: {} for member in members}
        for topic in sorted({topic for metadata in members.values() for topic in metadata.subscription}):
            readers = [member for member in ordered if topic in members[member].subscription]
            partitions = sorted(cluster.partitions_for_topic(topic) or ())
            wanted = partitions if self._reads is None else filter(self._reads, partitions)
            for index, partition in enumerate(wanted):
                shares[readers[index % len(readers)]].setdefault(topic, []).append(partition)
        return {
            member: ConsumerProtocolMemberAssignment(_VERSION, sorted(share.items()), b"")
            for member, share in shares.items()
        }

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Nothing to remember: an assignment follows from the members alone."""


def natural(instance: bytes) -> tuple[bytes, int]:
    """Order instance ids by their trailing replica number as a number: replica 10 comes after replica 2."""
    stem, _, number = instance.rpartition(b".")
    return (stem, int(number)) if number.isdigit() else (instance, -1)


_POLL = 0.25  # seconds that one wait for records lasts
_AHEAD = 2  # chunks that may wait for the agent


class Joining(Protocol):
    """The transport, as far as the thread needs it."""

    membership: Membership


class Receiver(Protocol):
    """The consumer's half on the application's loop. The thread reads of it, and calls it there."""

    epoch: int
    taken: int

    def active_in(self, epoch: int) -> frozenset[TopicPartition]:
        """Say which partitions may be taken from; none once the epoch is over."""
        ...

    def receive(self, epoch: int, drained: Drained) -> None:
        """Take a chunk, unless the epoch is over."""
        ...

    def out_of_range(self, epoch: int, tp: TopicPartition, position: int) -> None:
        """Learn that the log does not have the position that is to be read next."""
        ...

    def crashed(self, error: BaseException) -> None: ...


class StageConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """The thread that fetches, heartbeats and commits."""

    leave_on_stop = True
    handed = 0  # chunks given to the application's loop
    _beside: tuple[asyncio.Task[None], ...] = ()
    _idle = False

    def _create_worker_consumer(self, transport: Joining) -> AIOKafkaConsumer:
        member = transport.membership
        consumer = AIOKafkaConsumer(
            **{
                "client_id": member.instance,
                "group_id": member.group,
                "group_instance_id": member.instance,
                "partition_assignment_strategy": [InstanceAssignor(member.instance, member.reads)],
                "enable_auto_commit": False,
                "auto_offset_reset": "none",  # where reading begins, and what is out of range, its owner decides
                "max_poll_interval_ms": 24 * 3600 * 1000,  # stuck stages are noticed from outside, by their lag
                "max_partition_fetch_bytes": member.fetch_bytes,
                "fetch_max_wait_ms": int(member.fetch_wait * 1000),
                "session_timeout_ms": int(member.session * 1000),
                "heartbeat_interval_ms": int(member.heartbeat * 1000),
                "rebalance_timeout_ms": int(member.rebalance * 1000),
                **member.connection,
            }
        )
        look_up_patiently(consumer._client)
        hang_up_on_silence(consumer._client)
        return consumer

    async def on_start(self) -> None:
        """Start the consumer, then take over its fetcher's output and look after its group."""
        await super().on_start()
        consumer = self._ensure_consumer()
        consumer._coordinator._coordination_task.add_done_callback(self._out_of_group)
        self._woken = asyncio.Event()
        keeping = keep_known(consumer._client, consumer.subscription)
        self._beside = asyncio.create_task(self._pull()), asyncio.create_task(keeping)

    def _out_of_group(self, coordination: asyncio.Task[None]) -> None:
        """Tell the owner that nothing will be assigned any more; aiokafka says so to those who poll it alone."""
        if not coordination.cancelled() and (error := coordination.exception()) is not None:
            lost = BrokerError(f"{self.transport.membership.group}: cannot be a member of the group: {error}")
            self.parent_loop.call_soon_threadsafe(self.consumer.crashed, lost)

    async def on_thread_stop(self) -> None:
        """Leave the group first where this replica stops for good: its partitions move on at once."""
        if self.leave_on_stop and self._consumer is not None and self._consumer._coordinator is not None:
            # aiokafka sends no LeaveGroup for a static member, and asks for this name in that place only
            self._consumer._coordinator._group_instance_id = None
        for task in self._beside:
            task.cancel()
        await super().on_thread_stop()

    async def _pull(self) -> None:
        """Hand over what is fetched, chunk by chunk, for as long as the thread lives."""
        consumer: Receiver = self.consumer
        post = self.parent_loop.call_soon_threadsafe
        drain = Drain(
            self._ensure_consumer(),
            self.transport.membership.chunk_records,
            lambda tp, position: post(consumer.out_of_range, consumer.epoch, tp, position),
        )
        try:
            while True:
                epoch = consumer.epoch
                if self.handed - consumer.taken >= _AHEAD or not consumer.active_in(epoch):
                    self._idle = True
                    if self.handed - consumer.taken >= _AHEAD or not consumer.active_in(consumer.epoch):
                        await self._woken.wait()
                    self._idle = False
                    self._woken.clear()
                    continue
                drained = await drain.take(lambda epoch=epoch: consumer.active_in(epoch), _POLL)  # type: ignore[misc]
                if drained:
                    self.handed += 1
                    self.parent_loop.call_soon_threadsafe(consumer.receive, epoch, drained)
        except ConsumerStoppedError:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, the stage is deaf now and must end
            self.parent_loop.call_soon_threadsafe(consumer.crashed, error)

    def wake(self) -> None:
        """Look again whether anything may be handed over. Called from the application's loop."""
        if self._idle:
            self.thread_loop.call_soon_threadsafe(self._woken.set)

    async def commit_metadata(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
        """Commit; False when the group has moved on, so that the offsets were not ours to commit any more."""
        return await self.call_thread(self._commit_metadata, offsets)  # type: ignore[no-any-return]

    async def _commit_metadata(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
        try:
            await self._ensure_consumer().commit(dict(offsets))
        except (CommitFailedError, IllegalStateError) as error:
            log.info("Not committed, as the group is rebalancing: %s", error)
            return False
        return True

    async def committed_metadata(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Read the group's committed offsets with their metadata; a partition without one is missing."""
        return await self.call_thread(self._committed_metadata, list(partitions))  # type: ignore[no-any-return]

    async def _committed_metadata(self, partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        coordinator = self._ensure_consumer()._coordinator
        return await coordinator.fetch_committed_offsets(partitions)  # type: ignore[no-any-return]

    async def bounds(self, partitions: Sequence[TopicPartition]) -> dict[int, Bounds]:
        """Read where the log of each partition of one topic begins and ends."""
        return await self.call_thread(self._bounds, partitions) if partitions else {}

    async def _bounds(self, partitions: Sequence[TopicPartition]) -> dict[int, Bounds]:
        consumer = self._ensure_consumer()
        while True:
            try:
                starts = await consumer.beginning_offsets(partitions)
                ends = await consumer.end_offsets(partitions)
            except KafkaTimeoutError as error:  # as long as no leader answers; the watchdog bounds how long that is
                log.warning("%s: %s", self.transport.membership.group, error)
            else:
                return {tp.partition: Bounds(starts[tp], ends[tp]) for tp in partitions}

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Faust's guesses at a stalled stream do not fit chunks; the supervisor watches lag and progress instead."""
