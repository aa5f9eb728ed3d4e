"""Blocking calls to a cluster that may be starting, electing or restarting: asked again, for a bounded time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from spillway.lineage.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Producer

_T = TypeVar("_T")

_FIRST_SECONDS = 1.0  # what a broker that is well is given for an answer
_LONGEST_SECONDS = 5.0
_PAUSE_SECONDS = 0.02

# Errors that pass by themselves, beyond those that librdkafka marks as retriable (it does so in transactions only).
_PASSING = frozenset(
    {
        KafkaError._TIMED_OUT,  # noqa: SLF001 (librdkafka's local codes have underscores)
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
        KafkaError._DESTROY_BROKER,  # noqa: SLF001 - a request was on a connection that is being replaced
        KafkaError._NOENT,  # noqa: SLF001 - no leader is known: brokers that start say so of partitions
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)


class UnansweredError(BrokerError):
    """Nothing but errors that pass came for as long as one was ready to wait."""


UNKNOWN_TOPIC: Final = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)  # of a topic that is gone, or of a broker that has just started


def gone(topic: str, error: str) -> str:
    """Return what to tell an operator whose topic the cluster does not know any more."""
    return (
        f"{topic} is not there any more ({error}), or its broker has just started: 'spillway broker topics list' shows "
        "which. If it was deleted, or the cluster is another one, stop the pipeline, delete its other topics and its "
        "consumer groups ('spillway broker topics delete'), and serve it again"
    )


class AnswerTime:
    """How long to wait for the next answer: `seconds`.

    librdkafka throws away an answer that comes later than it was told to wait, so a broker that always takes longer
    than that would never be heard: each `late` doubles the time, up to `_LONGEST_SECONDS`.
    """

    def __init__(self) -> None:
        self.seconds = _FIRST_SECONDS

    def late(self) -> None:
        self.seconds = min(2 * self.seconds, _LONGEST_SECONDS)

    def answered(self, took: float) -> None:
        """Note that one came, in so many seconds."""
        self.seconds = min(max(2 * took, _FIRST_SECONDS), _LONGEST_SECONDS)


def patiently(call: Callable[[float], _T], what: str, within: float) -> _T:
    """Return `call(timeout)`, asked again while it fails with an error that passes, for at most `within` seconds.

    Time-outs grow, as `AnswerTime` has them, up to what is left. Raises `BrokerError`, saying that one could not
    `what`; where the time was over, an `UnansweredError`.
    """
    until = time.monotonic() + within
    given = AnswerTime()
    while True:
        try:
            return call(min(given.seconds, max(until - time.monotonic(), _FIRST_SECONDS)))
        except KafkaException as error:
            cause = error.args[0]
            if not passes(cause):
                raise BrokerError(f"could not {what}: {cause.str()} ({cause.name()})") from error
            if time.monotonic() >= until:
                raise UnansweredError(f"could not {what} within {within:.0f} s: {cause.str()}") from error
            if cause.code() == KafkaError._TIMED_OUT:  # noqa: SLF001
                given.late()
            time.sleep(_PAUSE_SECONDS)


def passes(cause: KafkaError) -> bool:
    return bool(cause.retriable() or cause.code() in _PASSING)


def unanswered() -> KafkaException:
    """What librdkafka raises of a call in a transaction whose time is over: it may be tried again."""
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))  # noqa: SLF001


def serve(producer: Producer, seconds: float) -> None:
    """Poll for reports. Raises `KafkaException` for what has become of the producer."""
    _naming(lambda: producer.poll(seconds))


def _naming(call: Callable[[], int]) -> int:
    """Make a call in which reports are served. Raises `KafkaException`, also where confluent-kafka (2.16) hides it.

    It raises a fatal error in the midst of such a call and calls the logger while that is set, of which Python makes a
    SystemError.
    """
    try:
        return call()
    except SystemError as error:
        found: BaseException | None = error
        while found is not None and not isinstance(found, KafkaException):
            found = found.__cause__
        if found is None:
            raise
        raise found from None


def flush(producer: Producer, seconds: float) -> None:
    """Have the broker answer for all that was produced. Raises `KafkaException`, to be tried again, where it does not.

    The records' reports say which of them it has.
    """
    if _naming(lambda: producer.flush(seconds)):
        raise unanswered()
