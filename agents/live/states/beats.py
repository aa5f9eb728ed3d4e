"""Heartbeats of a shard's members, and reports of those that ended, on `<p>.beat` (rule 13).

Whoever hears beats hears as well that something was appended to `<p>.control`, so that nobody else has to ask for that
all the time.

Two threads, so that neither a loop nor a state that is being written holds a beat up: one sends a beat every 100 ms, by
a producer of its own, and sleeps in between; the other, with a consumer of its own, reads the topic from its end. What
is posted, by whichever of the hearer's calls, is what `spillway.checkpoint.leases.Emission` and
`spillway.checkpoint.silence.Watch` want:

* `sent`: a beat is about to be handed over; the time was taken before that, and this is posted before what comes back.
* `heard`: a beat of this shard was read, one's own (`beat.member`) included, and when it was read.
* `reported`: somebody, mostly the supervisor, says that members of this shard have ended.

Times are of `time.monotonic`. A beat that cannot be delivered within a second is dropped: an old one tells nothing, and
the next is on its way. A producer that has delivered nothing for some seconds is replaced by a new one: one that has
seen a broker go away may else not find it again. `failed` tells of what time does not heal; a member without beats
loses its lease.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import OFFSET_END, KafkaException, Producer, TopicPartition

from spillway.agents.live.states.worker import Worker
from spillway.agents.run import crash_points
from spillway.checkpoint.leases import BEAT_SECONDS
from spillway.lineage.errors import BrokerError, WireError
from spillway.lineage.marks import INITIAL
from spillway.lineage.replication import Beat, Report
from spillway.lineage.values.replication import ReplicationDecoder, encode
from spillway.producers.cluster import Reader
from spillway.producers.patience import UNKNOWN_TOPIC, passes
from spillway.topology.topics import beat as beat_topic
from spillway.topology.topics import control

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spillway.agents.live.states.worker import Post
    from spillway.agents.run.shard_roles import RoleDriver
    from spillway.lineage.marks import Place, Version
    from spillway.producers.connection import ClientSettings

log = logging.getLogger(__name__)

_MICROSECONDS: Final = 1_000_000
_ROUND: Final = 0.2  # seconds after which a thread looks whether it is to end
_SILENT_SECONDS: Final = 3.0  # without a delivery, after which a producer is replaced
_ANSWER_SECONDS: Final = 1.0  # what the broker is given to say that it is there, when beats are not heard
_CONNECT_SECONDS: Final = 30.0
_AT_ONCE: Final = 500
_FLUSH_SECONDS: Final = 1.0
_BEATS: Final = {"acks": "1", "retries": 0, "message.timeout.ms": 1_000}  # what counts is that a beat comes back
_REPORTS: Final = {"acks": "all", "message.timeout.ms": 5_000}
_QUICK: Final[dict[str, Any]] = {
    "linger.ms": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "socket.nagle.disable": True,
}
# Beats are heard in handfuls, as each would else cost a request of everybody; a report is as long as they wait for.
_HANDFUL_BYTES: Final = 1_000
_CONSUMER: Final[dict[str, Any]] = {
    "client.id": "beats",
    "fetch.min.bytes": _HANDFUL_BYTES,
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
    "socket.nagle.disable": True,
    "auto.offset.reset": "latest",
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
}


class Standing(NamedTuple):
    """What a member says of itself in its beats."""

    role: str
    epoch: int = 0
    version: Version = INITIAL


class Beats:
    """The heart of one member. It beats from the start; `close` ends it."""

    def __init__(
        self,
        settings: ClientSettings,
        pipeline: str,
        place: Place,
        member: str,
        standing: Standing,
        hearer: RoleDriver,
        post: Post,
        *,
        stirred: Callable[[], object] = bool,
    ) -> None:
        """All calls of `hearer` come through `post`, as does `stirred`: somebody claims a shard, or asks for one."""
        self._settings = settings
        self._topic, self._control = beat_topic(pipeline), control(pipeline)
        self._stirred = stirred
        self._place, self._member, self._hearer = place, member, hearer
        self._prefix = _key(place) + b"/"
        self._decoder = ReplicationDecoder()
        self.standing = standing  # replaced by its owner as it changes; whole, so that no lock is needed
        self._sender = Worker("beats-out", self._send, post, hearer.failed)
        self._receiver = Worker("beats-in", self._receive, post, hearer.failed)
        self._receiver.start()
        self._sender.start()

    def close(self) -> None:
        for worker in (self._sender, self._receiver):
            worker.stop()
        for worker in (self._sender, self._receiver):
            worker.join()

    def _send(self) -> None:
        mouth = _Mouth(self._settings, self._topic, _BEATS)
        sequence, due = 0, time.monotonic()
        while not self._sender.pause(max(0.0, due - time.monotonic())):
            sequence += 1
            standing = self.standing
            crash_points.at("before-renewal")
            at = time.monotonic()
            self._sender.tell(self._hearer.sent, at, sequence)
            beat = Beat(
                *self._place,
                self._member,
                standing.epoch,
                standing.role,
                sequence,
                int(time.time() * _MICROSECONDS),
                standing.version,
            )
            mouth.say(self._prefix + self._member.encode(), encode(beat))
            crash_points.at("after-renewal")
            due = max(due + BEAT_SECONDS, at)  # one that is late is not made up for

    def _receive(self) -> None:
        with closing(Reader(self._settings, _CONSUMER)) as reader:
            with suppress(KafkaException):  # its first request waits for half a second where no leader is known
                reader.consumer.list_topics(self._topic, timeout=_ANSWER_SECONDS)
            reader.assign([TopicPartition(topic, 0, OFFSET_END) for topic in (self._topic, self._control)])
            while not self._receiver.stopped:
                messages = reader.read(_ROUND, _AT_ONCE)
                reader.heed(_SILENT_SECONDS, _ANSWER_SECONDS)
                at = time.monotonic()
                for message in messages:
                    self._take(message, at)

    def _take(self, message: Any, at: float) -> None:
        error = message.error()
        if error is not None:
            if not passes(error) and error.code() not in UNKNOWN_TOPIC:
                raise BrokerError(f"cannot read {message.topic()}: {error.str()}")
            return
        if message.topic() == self._control:
            self._receiver.tell(self._stirred)
            return
        if not (message.key() or b"").startswith(self._prefix):
            return
        record = _spoken(message, self._place, self._decoder)
        if isinstance(record, Beat):
            self._receiver.tell(self._hearer.heard, record, at)
        elif isinstance(record, Report):
            self._receiver.tell(self._hearer.reported, record)


class _Mouth:
    """A producer of small records that nobody misses one by one."""

    def __init__(self, settings: ClientSettings, topic: str, properties: Mapping[str, Any]) -> None:
        self._settings = {**settings.confluent(), **_QUICK, **properties}
        self._topic = topic
        self.lost = 0  # records that were not delivered
        self._failing: float | None = None  # since when
        self.producer = Producer(self._settings, logger=log)

    def say(self, key: bytes, value: bytes, **headers: bytes) -> None:
        """Hand a record over; does not wait. One that finds no room is dropped, as the broker is away then."""
        self.producer.poll(0)
        if self._failing is not None and time.monotonic() - self._failing > _SILENT_SECONDS:
            self.producer.purge()
            self.producer, self._failing = Producer(self._settings, logger=log), None
        try:
            self.producer.produce(self._topic, value, key, 0, self._reported, headers=headers)
        except (BufferError, KafkaException) as error:
            log.debug("the heartbeat was not sent to %s: %s", self._topic, error)

    def _reported(self, error: Any, _message: Any) -> None:
        if error is None:
            self._failing = None
            return
        self.lost += 1
        if self._failing is None:
            self._failing = time.monotonic()


class Reporter:
    """Reports members whose end their supervisor has seen, so that nobody has to wait for their silence (rule 13).

    A report that the broker does not take in time is lost; then that silence tells. For one thread. Raises BrokerError
    where the cluster cannot be reached at first.
    """

    def __init__(self, settings: ClientSettings, pipeline: str) -> None:
        topic = beat_topic(pipeline)
        self._mouth = _Mouth(settings, topic, _REPORTS)
        try:
            self._mouth.producer.list_topics(topic, _CONNECT_SECONDS)  # so that the first report leaves at once
        except KafkaException as error:
            raise BrokerError(f"cannot look for {topic}: {error.args[0].str()}; is the cluster up?") from error

    def report(self, stage: str, shard: int, member: str) -> None:
        """Tell all members of the shard that the process `member` is dead. Does not block."""
        report = Report(stage, shard, (member,), int(time.time() * _MICROSECONDS), "its supervisor saw it end")
        self._mouth.say(_key((stage, shard)) + b"/", encode(report), length=bytes(_HANDFUL_BYTES))

    def close(self) -> None:
        if self._mouth.producer.flush(_FLUSH_SECONDS) or self._mouth.lost:
            log.warning("the other members may not know that a member died; they take over when its lease ends")


def _spoken(message: Any, place: Place, decoder: ReplicationDecoder) -> Beat | Report | None:
    """What a record under a shard's keys says; one that is no beat and no report of this shard's is told of."""
    why = "it belongs to another shard"
    try:
        record = decoder.record(message.value() or b"")
    except WireError as error:
        why = str(error)
    else:
        if not isinstance(record, (Beat, Report)):
            why = f"a {type(record).__name__} does not belong in it"
        elif (record.stage, record.shard) == place:
            return record
    log.warning("%s offset %s is ignored: %s", message.topic(), message.offset(), why)
    return None


def _key(place: Place) -> bytes:
    return f"{place[0]}/{place[1]}".encode()
