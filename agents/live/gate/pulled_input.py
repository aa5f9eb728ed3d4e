"""The gate's input on Kafka: its membership in its group, static and cooperative, and left in an orderly way.

Static, so that a gate that is restarted within its session gets its partitions back at once and nobody else has to
read their memory. That has a price: neither librdkafka nor aiokafka tells the broker when a static member leaves for
good, and its partitions would lie idle for a whole session. So `leave` says it in their stead.

Each call blocks, on the thread that owns the consumer, and librdkafka calls back within (`blocking`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spillway.agents.live.gate.blocking import complete
from spillway.agents.live.gate.fencing import UnheardError, is_fencing, ousted
from spillway.agents.live.groups import group_id, instance_id
from spillway.lineage.errors import BrokerError
from spillway.lineage.metric_names import GATE
from spillway.lineage.ports import UNREADABLE, Commit, PulledInput
from spillway.producers.kafka.records import header_pairs, record_of
from spillway.producers.patience import UNKNOWN_TOPIC, UnansweredError, gone, passes, patiently

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spillway.lineage.ports import Bounds, PulledOwner, Record
    from spillway.producers.connection import ClientSettings

log = logging.getLogger(__name__)

SESSION_MS = 10_000
_HEARTBEAT_MS = 500  # how soon a member hears of a rebalance
_LEAVE_SECONDS = 3.0


def member_settings(settings: ClientSettings, pipeline: str, replica: int) -> dict[str, Any]:
    """How a gate takes part in its group; it commits nothing by itself."""
    return {
        **settings.confluent(),
        "group.id": group_id(pipeline, GATE),
        "group.instance.id": instance_id(pipeline, GATE, replica),
        "client.id": instance_id(pipeline, GATE, replica),
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": _HEARTBEAT_MS,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",  # each partition is assigned with where it begins
        "isolation.level": "read_committed",  # also makes it wait for offsets that a transaction is moving
        "fetch.wait.max.ms": 250,
        "fetch.queue.backoff.ms": 10,
        "queued.min.messages": 2_000,
        "queued.max.messages.kbytes": 16_384,
    }


def leave(settings: ClientSettings, group: str, member_id: str) -> None:
    """Leave the group for a static member, whose consumer is closed and will not come back.

    Where that fails, the partitions move on when the session ends, so it is not worth more than a log line.
    """
    try:
        asyncio.run(asyncio.wait_for(_leave(settings.aiokafka(), group, member_id), _LEAVE_SECONDS))
    except (TimeoutError, OSError) as error:
        log.warning("could not leave the group %s: %s", group, error)


async def _leave(connection: dict[str, Any], group: str, member_id: str) -> None:
    # Imported here, as aiokafka is needed for this one request at the very end.
    from aiokafka.client import AIOKafkaClient  # noqa: PLC0415
    from aiokafka.errors import KafkaError as AIOKafkaError  # noqa: PLC0415
    from aiokafka.protocol.group import LeaveGroupRequest  # noqa: PLC0415

    client = AIOKafkaClient(**connection)
    try:
        await client.bootstrap()
        coordinator = await client.coordinator_lookup(0, group)
        answer = await client.send(coordinator, LeaveGroupRequest(group, member_id))
        log.info("left the group %s (answer %s)", group, answer.error_code)
    except AIOKafkaError as error:
        raise OSError(str(error)) from error
    finally:
        await client.close()


_GROUP_SECONDS = 20.0  # for the group's word; a transaction that is open withholds it for at most half of that


class KafkaPulledInput(PulledInput):
    """A consumer of one topic in a group; another one where the broker has ousted it."""

    def __init__(
        self,
        topic: str,
        settings: Mapping[str, Any],
        bounds: Callable[[int], Bounds],
        leave: Callable[[str], None] = lambda _member_id: None,
    ) -> None:
        """`settings`: librdkafka's. `bounds` gives those of a partition.

        `leave` is called with the id of a member that does not come back.
        """
        self._topic = topic
        self._settings = settings
        self._leave = leave
        self._name = settings["group.instance.id"]
        self._bounds = bounds
        self._consumer: Any = None
        self._read: set[int] = set()  # the partitions that the consumer was told to read
        self._paused: set[int] = set()  # those of them that it was told to pause
        self._gone: set[int] = set()  # what was revoked within this call of `take`

    async def join(self, owner: PulledOwner) -> None:
        self._close()
        self._owner = owner
        self._consumer = Consumer(self._settings, logger=log)
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def membership(self) -> Any:
        """Return what fences a transaction by the group, as confluent-kafka takes it."""
        return self._consumer.consumer_group_metadata()

    def leave(self) -> None:
        """Leave the group, which the consumer joins again as a new member when it hears of it. From any thread."""
        consumer = self._consumer
        if consumer is not None and (member_id := consumer.memberid()):
            self._leave(member_id)

    async def close(self, *, leave: bool) -> None:
        if self._consumer is None:
            return
        member_id = self._consumer.memberid()
        self._close()
        if leave and member_id:
            self._leave(member_id)

    def _close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = None
        self._read.clear()
        self._paused.clear()

    # Reading ---------------------------------------------------------------------------------------------------

    async def take(self, most: int, within: float) -> Sequence[Record]:
        self._gone.clear()
        try:
            found = self._found(most, within)
        except KafkaException as error:
            raise self._failure(error.args[0]) from error
        if found and found[0].partition() in self._gone:  # librdkafka leaves out the others of an old assignment
            del found[0]
        return [record for message in found if (record := self._record(message)) is not None]

    def _found(self, most: int, within: float) -> list[Any]:
        if within <= 0:
            return self._consumer.consume(most, 0)  # type: ignore[no-any-return]
        first = self._consumer.poll(within)
        return [] if first is None else [first, *self._consumer.consume(most - 1, 0)]

    def _failure(self, error: KafkaError) -> BrokerError:
        if is_fencing(error):
            return ousted(self._name, error)
        if error.code() in UNKNOWN_TOPIC:
            return BrokerError(gone(self._topic, error.str()))
        return BrokerError(f"gate {self._name} cannot read {self._topic}: {error.str()} ({error.name()})")

    def _record(self, message: Any) -> Record | None:
        partition, error = message.partition(), message.error()
        if error is None:
            if partition not in self._read:
                return None  # revoked while it was in hand
            pairs = header_pairs(message)
            return record_of(message, UNREADABLE if pairs is None else pairs)
        if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 (librdkafka's local codes have underscores)
            if partition in self._read:
                self._judge(partition, message.offset())
        elif not is_fencing(error) and (passes(error) or error.code() == KafkaError._MAX_POLL_EXCEEDED):  # noqa: SLF001 (it joins again)
            log.info("gate %s: %s", self._name, error.str())
        else:
            raise self._failure(error)
        return None

    def _judge(self, partition: int, position: int) -> None:
        """Ask the owner where to read on in a partition whose log does not have its position."""
        start = self._owner.out_of_range(partition, position, self._bounds(partition))
        if start is not None:
            place = TopicPartition(self._topic, partition, start)
            self._consumer.incremental_unassign([place])  # librdkafka cannot seek one that was out of range
            self._consumer.incremental_assign([place])

    def pause(self) -> None:
        if fresh := self._read - self._paused:
            self._consumer.pause(self._places(fresh))
            self._paused |= fresh

    def resume(self) -> None:
        self._resume(self._paused)

    def _resume(self, partitions: Iterable[int]) -> None:
        """End the pause of those that are paused. Call it before they are unassigned: librdkafka keeps a pause."""
        paused = self._paused.intersection(partitions)
        if paused:
            self._consumer.resume(self._places(paused))
            self._paused -= paused

    def _places(self, numbers: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number) for number in sorted(numbers)]

    async def positions(self, partitions: Iterable[int]) -> dict[int, Commit]:
        try:
            return committed_places(self._consumer, self._topic, partitions, _GROUP_SECONDS)
        except UnansweredError as error:
            raise UnheardError(str(error)) from error

    # Partitions come and go ------------------------------------------------------------------------------------

    async def read_on(self, starts: Mapping[int, int]) -> None:
        try:
            self._resume(self._read)
            self._consumer.incremental_unassign(self._places(self._read))
            self._read.clear()
            self._begin(starts)
        except KafkaException as error:
            raise self._failure(error.args[0]) from error

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._begin(complete(self._owner.assigned(frozenset(place.partition for place in partitions))))

    def _begin(self, starts: Mapping[int, int]) -> None:
        places = [TopicPartition(self._topic, partition, start) for partition, start in starts.items()]
        self._consumer.incremental_assign(places)
        self._read |= starts.keys()

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = frozenset(place.partition for place in partitions)
        complete(self._owner.revoked(gone))
        self._resume(gone)
        consumer.incremental_unassign(self._places(gone & self._read))  # one that was stopped was never assigned
        self._read -= gone
        self._gone |= gone


def committed_places(consumer: Consumer, topic: str, partitions: Iterable[int], within: float) -> dict[int, Commit]:
    """Return the group's stable committed offsets; `consumer` must be of the group and read_committed."""
    asked = [TopicPartition(topic, partition) for partition in partitions]
    answered = patiently(lambda s: consumer.committed(asked, timeout=s), "read its committed offsets", within)
    for place in answered:
        if place.error is not None:
            raise BrokerError(f"no committed offset of {topic}[{place.partition}]: {place.error.str()}")
    return {place.partition: Commit(place.offset, place.metadata or "") for place in answered if place.offset >= 0}
