"""Connections to a cluster: a consumer without a group, an idempotent producer, and errors that say what to do."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from lineage.errors import BrokerError, TopicError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from producers.connection import ClientSettings

log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")
_FAST_RECOVERY: Final[dict[str, Any]] = {
    # A broker that restarts is back within seconds; the defaults back off for up to ten.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.fast.interval.ms": 100,
}
_ROUND = 2.0  # seconds of one attempt
_PAUSE = 0.05
_REFUSED = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})  # noqa: SLF001 - time does not heal these


class Reader:
    """A consumer that reads partitions it is told to, belongs to no group and leaves nothing behind on the cluster.

    `properties` are librdkafka's, beyond `settings`. Raises `BrokerError` where the cluster cannot be reached or lets
    nobody in, `TopicError` where a topic is missing.
    """

    def __init__(self, settings: ClientSettings, properties: Mapping[str, Any]) -> None:
        self._bootstrap = settings.bootstrap
        self._trouble: list[KafkaError] = []
        options = {
            "group.id": "spillway-reader",  # librdkafka wants one; without a subscription or a commit it is never used
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "allow.auto.create.topics": False,
            "error_cb": _noting(self._trouble),
            **_FAST_RECOVERY,
            **properties,
        }
        self.consumer: Any = _made(Consumer, settings, options)

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
                raise self._no_topic(topic, listed.error)
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

    def close(self) -> None:
        """Let the consumer go."""
        self.consumer.close()

    def _watermarks(self, partition: TopicPartition, seconds: float) -> Any:
        return self.consumer.get_watermark_offsets(partition, timeout=seconds)

    def _ask(self, question: Callable[[float], Any], deadline: float) -> Any:
        return _answer(question, deadline, self._bootstrap, self.consumer, self._trouble)

    def _no_topic(self, topic: str, error: KafkaError) -> TopicError:
        return TopicError(
            f"cannot use topic {topic} on {self._bootstrap}: {error.str()}; the pipeline creates its topics when it "
            "starts: is it running there ('spillway serve PIPELINE')?"
        )


def idempotent_producer(
    settings: ClientSettings,
    topic: str,
    timeout: float,
    properties: Mapping[str, Any],
    on_fatal: Callable[[str], None] = lambda _text: None,
    also: Sequence[str] = (),
) -> Any:
    """A producer that neither loses, repeats nor reorders while it lives, connected and ready to write to `topic`.

    `also`: further topics to be ready for. `on_fatal` hears, from within `poll`, when it can send no more.
    Raises `BrokerError`.
    """
    trouble: list[KafkaError] = []
    options = {
        "enable.idempotence": True,
        "error_cb": _noting(trouble, on_fatal),
        **_FAST_RECOVERY,
        **properties,
    }
    producer = _made(Producer, settings, options)
    # Without a connection it would ask for its producer id only half a second after the first message.
    deadline = time.monotonic() + timeout
    for name in (topic, *also):
        _answer(partial(producer.list_topics, name), deadline, settings.bootstrap, producer, trouble)
    return producer


def _made(kind: Callable[..., _Answer], settings: ClientSettings, options: Mapping[str, Any]) -> _Answer:
    try:
        return kind({**settings.confluent(), **options}, logger=log)
    except KafkaException as error:
        raise UsageError(f"the client settings cannot be used: {error.args[0].str()}") from error


def _noting(
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
                raise BrokerError(f"{bootstrap} refuses us: {why.str()}; look at the client settings") from error
            if left <= 0:
                raise BrokerError(
                    f"cannot reach Kafka at {bootstrap}: {why.str()}; start a broker with 'spillway broker start', "
                    "or name another with --bootstrap or SPILLWAY_BOOTSTRAP"
                ) from error
