"""What a gate reads when partitions come to it: where its predecessor stopped, and what that one has released.

Nothing but Kafka is asked, so any gate can go on where another was killed. The order of the steps is what makes it
safe, for partitions that another gate may have written a moment ago:

1. The committed offsets are read as *stable* ones: the broker withholds them while a transaction that moves them is
   open. From here on an older owner cannot commit for these partitions (the group's generation has moved on).
2. The end of each egress partition is taken *after* that, and everything below it is read as committed records; a
   transaction that is still open below it is waited for.
3. The core is told what its predecessor had released, then the input below the committed offset that still matters.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from lineage.errors import BrokerError
from producers.patience import passes, patiently

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from confluent_kafka.admin import AdminClient

    from agents.core.gate import GateCore
    from agents.live.gate_wire import Wire

log = logging.getLogger(__name__)

_READ_AT_ONCE = 500
NONE = -1


@dataclass(slots=True, frozen=True)
class Place:
    """Where a partition of the input stands: the next offset to take (NONE: none was committed), and its note."""

    partition: int
    offset: int
    note: str


@dataclass(slots=True, frozen=True)
class Span:
    """Offsets `start` to `end` (not included) of a partition."""

    start: int
    end: int


_NOTHING = Span(0, 0)


class Memory:
    """Fills a gate's core with what is known of partitions that come to it."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        consumer: Consumer,
        admin: AdminClient,
        *,
        outcomes: str,
        egress: str,
        wire: Wire,
    ) -> None:
        self._settings = settings
        self._consumer = consumer
        self._admin = admin
        self._outcomes = outcomes
        self._egress = egress
        self._wire = wire

    def load(self, core: GateCore, partitions: Sequence[int], within: float) -> list[Place]:
        """Assign `partitions` to `core`, memory and all, and return where each one is to be read from."""
        until = time.monotonic() + within
        places = committed_places(self._consumer, self._outcomes, partitions, within)
        inputs = bounds(self._admin, self._outcomes, partitions, within)
        released = bounds(self._admin, self._egress, partitions, within)
        starts: list[Place] = []
        again: dict[int, Span] = {}  # of the egress
        below: list[list[Span]] = []  # of the input, for each of `starts`
        for place in places:
            start = self._start(place, inputs[place.partition])
            spans, egress = core.assign(place.partition, start, place.note)
            starts.append(Place(place.partition, start, place.note))
            again[place.partition] = _within(Span(egress, released[place.partition].end), released[place.partition])
            below.append([_within(Span(*span), inputs[place.partition]) for span in spans])
        for message in read_spans(self._settings, self._egress, again, until - time.monotonic()):
            self._recall(core, message)
        for nth in zip_longest(*below, fillvalue=_NOTHING):
            wanted = {place.partition: span for place, span in zip(starts, nth, strict=True)}
            for message in read_spans(self._settings, self._outcomes, wanted, until - time.monotonic()):
                delivery = self._wire.envelope(message)
                if delivery is not None:
                    core.remember(delivery)
        return starts

    def _start(self, place: Place, there: Span) -> int:
        if place.offset == NONE:
            return there.start
        if place.offset < there.start:
            log.error(
                "outcomes %d to %d of %s[%d] were deleted before the gate could read them; raise the topic's retention",
                place.offset, there.start, self._outcomes, place.partition,
            )  # fmt: skip
            return there.start
        if place.offset > there.end:
            raise BrokerError(
                f"the gate has committed offset {place.offset} of {self._outcomes}[{place.partition}], which ends at "
                f"{there.end}: the topic has lost records or was made anew; if so, delete the gate's consumer group"
            )
        return place.offset

    def _recall(self, core: GateCore, message: Any) -> None:
        partition, offset = message.partition(), message.offset()
        found = self._wire.released(message)
        if found is None:
            log.warning("%s[%d] holds a foreign record at %d", self._egress, partition, offset)
        else:
            core.recall(partition, offset, *found, message.timestamp()[1] / 1000)


def _within(span: Span, there: Span) -> Span:
    return Span(max(span.start, there.start), min(span.end, there.end))


def committed_places(consumer: Consumer, topic: str, partitions: Iterable[int], within: float) -> list[Place]:
    """The group's stable committed offsets with their notes; `consumer` must be of the group and read_committed."""
    asked = [TopicPartition(topic, partition) for partition in partitions]
    answered = patiently(lambda s: consumer.committed(asked, timeout=s), "read its committed offsets", within)
    for position in answered:
        if position.error is not None:
            raise BrokerError(f"no committed offset of {topic}[{position.partition}]: {position.error.str()}")
    return [Place(p.partition, max(p.offset, NONE), p.metadata or "") for p in answered]


def bounds(admin: AdminClient, topic: str, partitions: Iterable[int], within: float) -> dict[int, Span]:
    """The first offset of each partition and its end, with records of open transactions counted in."""
    wanted = [TopicPartition(topic, partition) for partition in partitions]

    def ask(spec: OffsetSpec, seconds: float) -> dict[int, int]:
        futures = admin.list_offsets(
            dict.fromkeys(wanted, spec), isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=seconds
        )
        try:
            return {place.partition: future.result().offset for place, future in futures.items()}
        except KafkaException:
            admin.list_topics(
                timeout=seconds
            )  # else librdkafka asks with the leader epochs of before a restart, for ever
            raise

    first = patiently(lambda s: ask(OffsetSpec.earliest(), s), f"list the offsets of {topic}", within)
    last = patiently(lambda s: ask(OffsetSpec.latest(), s), f"list the offsets of {topic}", within)
    return {partition: Span(first[partition], last[partition]) for partition in first}


def read_spans(settings: Mapping[str, Any], topic: str, spans: Mapping[int, Span], within: float) -> Iterator[Any]:
    """Yield the committed records (`confluent_kafka.Message`) of `topic` in `spans`, in order within a partition.

    Uses a consumer of its own, in no group. What retention has deleted meanwhile is passed over. Raises
    `BrokerError` when an end is not reached within `within` seconds, which is so while a transaction hangs below it.
    """
    waiting = {partition: span for partition, span in spans.items() if span.start < span.end}
    if not waiting:
        return
    until = time.monotonic() + within
    reader = _reader(settings, topic)
    try:
        reader.assign([TopicPartition(topic, partition, span.start) for partition, span in waiting.items()])
        while waiting:
            for message in reader.consume(_READ_AT_ONCE, 0.1):
                span = waiting.get(message.partition())
                if span is None:
                    continue
                if message.error() is None and message.offset() < span.end:
                    yield message
                if _reached(message, span, topic):
                    del waiting[message.partition()]
            if waiting and time.monotonic() >= until:
                raise BrokerError(
                    f"could not read {topic} {sorted(waiting)} up to its end within {within:.0f} s; "
                    "is a transaction hanging there?"
                )
    finally:
        reader.close()


def _reader(settings: Mapping[str, Any], topic: str) -> Consumer:
    return Consumer(
        {
            **settings,
            "group.id": f"{topic}.reader",  # librdkafka wants one; nothing is joined or committed under it
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            "queued.max.messages.kbytes": 16384,
        },
        logger=log,
    )


def _reached(message: Any, span: Span, topic: str) -> bool:
    """Whether this message, or the end-of-partition mark in its place, says that `span` has been read.

    The mark stands at the end of what is committed so far: below `span.end` as long as a transaction is open there.
    """
    error = message.error()
    if error is None:
        return bool(message.offset() + 1 >= span.end)
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (librdkafka's local codes have underscores)
        return bool(message.offset() >= span.end)
    if passes(error):
        return False
    raise BrokerError(f"cannot read {topic}[{message.partition()}]: {error.str()}")
