"""Connections to a cluster: a consumer without a group, an idempotent producer, and errors that say what to do."""

from __future__ import annotations

import logging
import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from spillway.lineage.errors import BrokerError, TopicError, UnreachableError, UsageError
from spillway.lineage.ports import Bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.producers.connection import ClientSettings

log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")
DEAF_SECONDS: Final = 10.0
REFUSED_SECONDS: Final = 3.0  # a client that begins waits no longer for a broker to listen
_ROUND = 2.0  # seconds of one attempt
_PAUSE = 0.05
ID_SECONDS: Final = 1.0  # no longer than what knowing that a producer has its id saves
_ID_PAUSE = 0.005
_REFUSED = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})  # noqa: SLF001 - time does not heal these


class Reader:
    """A consumer that reads partitions it is told to, belongs to no group and leaves nothing behind on the cluster.

    librdkafka may be left without a broker to connect to, for good, where the only one restarts (its issue 5301 tells
    of a way there). So whoever reads for long looks with `heed` whether the cluster still answers, or says so of its
    own questions (`answered`, `unanswered`): after `DEAF_SECONDS` without an answer there is another `consumer`, which
    goes on at the same place. Options are librdkafka's. Raises `UsageError` for what cannot be used. For one thread.
    """

    def __init__(self, settings: ClientSettings, properties: Mapping[str, Any]) -> None:
        self._settings = settings
        self._bootstrap = settings.bootstrap
        self._trouble: list[KafkaError] = []
        self._options = {
            "group.id": "spillway-reader",  # librdkafka wants one; without a subscription or a commit it is never used
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "allow.auto.create.topics": False,
            "error_cb": noting(self._trouble),
            **properties,
        }
        self._starts: dict[tuple[str, int], int] = {}
        self._heard_at = time.monotonic()
        self._deaf_since: float | None = None
        self.consumer: Any = _made(partial(Consumer, logger=log), settings, self._options)

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self._starts = {(place.topic, place.partition): place.offset for place in places}
        self.consumer.assign(list(places))

    def start(self, places: Sequence[TopicPartition]) -> None:
        """Read these as well; what is read already goes on where it is."""
        self._starts |= {(place.topic, place.partition): place.offset for place in places}
        self.consumer.incremental_assign(list(places))

    def stop(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            del self._starts[place.topic, place.partition]
        self.consumer.incremental_unassign(list(places))

    def read(self, seconds: float, at_once: int) -> list[Any]:
        first = self.consumer.poll(seconds)
        if first is None:
            return []
        self._heard_at = time.monotonic()
        return [first, *self.consumer.consume(at_once, 0)]

    def heed(self, quiet: float, within: float) -> None:
        """Ask whether the cluster is there, if nothing was heard for `quiet` seconds; blocks for `within` at most."""
        if not self._starts or time.monotonic() - self._heard_at < quiet:
            return
        try:
            there = bool(self.consumer.list_topics(next(iter(self._starts))[0], timeout=within).brokers)
        except KafkaException as error:
            log.debug("%s does not answer: %s", self._bootstrap, error)
            there = False
        self._heard_at = time.monotonic()  # or asked
        (self.answered if there else self.unanswered)()

    @property
    def deaf(self) -> bool:
        """Whether the cluster did not answer when it was asked last."""
        return self._deaf_since is not None

    def answered(self) -> None:
        self._deaf_since = None

    def unanswered(self) -> None:
        now = time.monotonic()
        if self._deaf_since is None:
            self._deaf_since = now
        elif now - self._deaf_since >= DEAF_SECONDS:
            self._renew()
            self._deaf_since = None

    def _renew(self) -> None:
        log.warning("%s has not answered for %.0f s: connecting again", self._bootstrap, DEAF_SECONDS)
        read = self.consumer.position([TopicPartition(*slot) for slot in self._starts])
        offsets = {(place.topic, place.partition): place.offset for place in read if place.offset >= 0}
        self.consumer.close()
        self.consumer = _made(partial(Consumer, logger=log), self._settings, self._options)
        self.assign([TopicPartition(*slot, offset) for slot, offset in {**self._starts, **offsets}.items()])

    def partitions(self, topic: str, timeout: float) -> int:
        """How many partitions `topic` has, asked until the cluster answers or `timeout` seconds have passed."""
        deadline = time.monotonic() + timeout
        while True:
            listed = self._ask(
                lambda seconds: self.consumer.list_topics(topic, timeout=seconds).topics.get(topic), deadline
            )
            if listed is not None and listed.error is None and listed.partitions:
                return len(listed.partitions)
            if listed is not None and listed.error is not None and not listed.error.retriable():
                raise self.no_topic(topic, listed.error)
            if time.monotonic() >= deadline:
                raise TopicError(f"topic {topic} on {self._bootstrap} has no partition with a leader")
            time.sleep(_PAUSE)

    def ends(self, topic: str, partitions: int, timeout: float) -> list[TopicPartition]:
        """The partitions of `topic`, each at the offset where the next message will be written."""
        deadline = time.monotonic() + timeout
        found = []
        for number in range(partitions):
            _, end = self._ask(partial(self._watermarks, TopicPartition(topic, number)), deadline)
            found.append(TopicPartition(topic, number, end))
        return found

    def bounds(self, place: TopicPartition, within: float) -> Bounds | None:
        """Return where a partition's log begins and ends, None if nobody says so `within` seconds.

        It may be asked while reading; `ends` may not, which polls to learn what is wrong and drops what that brings.
        """
        try:
            found = Bounds(*self._watermarks(place, within))
        except KafkaException as error:
            log.debug("%s does not say where %s [%d] ends: %s", self._bootstrap, place.topic, place.partition, error)
            found = Bounds(-1, -1)  # as a cluster says whose only broker is fenced
        (self.unanswered if found.end < 0 else self.answered)()
        return found if found.end >= 0 else None

    def close(self) -> None:
        self.consumer.close()

    def trouble(self, error: KafkaError) -> BrokerError:
        """What is wrong, where the cluster has left a question without an answer, which failed with `error`."""
        why = self._trouble[0] if self._trouble else error
        return refused(self._bootstrap, why) if why.code() in _REFUSED else unreachable(self._bootstrap, why.str())

    def _watermarks(self, partition: TopicPartition, seconds: float) -> Any:
        return self.consumer.get_watermark_offsets(partition, timeout=seconds)

    def _ask(self, question: Callable[[float], Any], deadline: float) -> Any:
        return _answer(question, deadline, self._bootstrap, self.consumer, self._trouble)

    def no_topic(self, topic: str, error: KafkaError) -> TopicError:
        return TopicError(
            f"cannot use topic {topic} on {self._bootstrap}: {error.str()}; the pipeline creates its topics when it "
            "starts: is it running there ('spillway serve PIPELINE')?"
        )


class ProducerLog:
    """librdkafka's log of one idempotent producer, which may also tell when the broker has given it its producer id.

    Without the id nothing is sent. librdkafka asks for it as soon as it is connected to a broker by name, but if the
    first connection was to a bootstrap address it tries again only half a second later, unless it is asked for
    metadata meanwhile. It says that it has the id in its log alone, under the debug context `eos`, which is silent
    from then on, and in words that may change: so whoever waits for them goes on without after `ID_SECONDS`. Pass
    `logger=` this and `DEBUG` with the configuration; lines arrive with `poll`.
    """

    DEBUG: Final[dict[str, Any]] = {"debug": "eos"}

    def __init__(self) -> None:
        self.has_id = False

    def log(self, level: int, message: str, *arguments: Any) -> None:
        if arguments and arguments[0] == "IDEMPSTATE":
            self.has_id = str(arguments[-1]).endswith("-> Assigned")
        log.log(level, message, *arguments)


def idempotent_producer(
    settings: ClientSettings,
    topic: str,
    timeout: float,
    properties: Mapping[str, Any],
    on_fatal: Callable[[str], None] = lambda _text: None,
    also: Sequence[str] = (),
) -> Any:
    """A producer that neither loses, repeats nor reorders while it lives, connected and ready to write to `topic`.

    It is asked for metadata until it has its producer id, for `ID_SECONDS` at most; a transactional one gets that from
    `init_transactions`. `also`: further topics to be ready for. `on_fatal` hears, from within `poll`, when it can send
    no more. Raises `BrokerError`.
    """
    trouble: list[KafkaError] = []
    options = {"enable.idempotence": True, "error_cb": noting(trouble, on_fatal), **ProducerLog.DEBUG, **properties}
    said = ProducerLog()
    producer = _made(partial(Producer, logger=said), settings, options)
    deadline = time.monotonic() + timeout
    for name in (topic, *also):
        _answer(partial(producer.list_topics, name), deadline, settings.bootstrap, producer, trouble)
    until = min(deadline, time.monotonic() + ID_SECONDS)
    while not said.has_id and "transactional.id" not in properties and time.monotonic() < until:
        producer.poll(_ID_PAUSE)
        _answer(partial(producer.list_topics, topic), deadline, settings.bootstrap, producer, trouble)
    return producer


def require_listening(bootstrap: str, within: float = REFUSED_SECONDS) -> None:
    """Raise BrokerError if each of the addresses refuses connections for `within` seconds.

    librdkafka goes on trying, as for a broker that restarts. An address that cannot be asked is left to it.
    """
    until = time.monotonic() + within
    while all(_refuses(address) for address in bootstrap.split(",")):
        if time.monotonic() >= until:
            raise unreachable(bootstrap, "nothing listens there")
        time.sleep(_PAUSE)


def answers(settings: ClientSettings, within: float) -> bool:
    """Return whether the cluster answers a new client within so many seconds."""
    try:
        AdminClient(settings.confluent(), logger=log).list_topics(timeout=within)
    except KafkaException:
        return False
    return True


def _refuses(address: str) -> bool:
    host, _, port = address.rpartition("://")[2].strip().rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ROUND).close()
    except ConnectionRefusedError:
        return True
    except (OSError, ValueError):
        return False
    return False


def refused(bootstrap: str, why: KafkaError) -> BrokerError:
    return BrokerError(f"{bootstrap} refuses the connection: {why.str()}; check the client settings")


def unreachable(bootstrap: str, why: str) -> UnreachableError:
    return UnreachableError(
        f"cannot reach Kafka at {bootstrap}: {why}; start a broker with 'spillway broker start', or name another "
        "with --bootstrap or SPILLWAY_BOOTSTRAP (and its client settings file)"
    )


def _made(kind: Callable[..., _Answer], settings: ClientSettings, options: Mapping[str, Any]) -> _Answer:
    try:
        return kind({**settings.confluent(), **options})
    except KafkaException as error:
        raise UsageError(f"the client settings cannot be used: {error.args[0].str()}") from error


def noting(
    trouble: list[KafkaError], on_fatal: Callable[[str], None] = lambda _text: None
) -> Callable[[KafkaError], None]:
    """Keep what librdkafka last said went wrong; that all brokers are down says less than why each is."""

    def note(error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not trouble:  # noqa: SLF001 - librdkafka's own codes
            trouble[:] = [error]
        if error.fatal():
            on_fatal(error.str())

    return note


def _answer(
    question: Callable[[float], _Answer], deadline: float, bootstrap: str, client: Any, trouble: list[KafkaError]
) -> _Answer:
    """Ask until there is an answer, or raise `BrokerError` with the reason that librdkafka has given on the side."""
    while True:
        left = deadline - time.monotonic()
        try:
            return question(max(_PAUSE, min(left, _ROUND)))
        except KafkaException as error:
            client.poll(_PAUSE)  # fills `trouble`
            why = trouble[0] if trouble else error.args[0]
            if why.code() in _REFUSED:
                raise refused(bootstrap, why) from error
            if left <= 0:
                raise unreachable(bootstrap, why.str()) from error
