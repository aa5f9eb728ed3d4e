"""One transaction: what the gate writes, the inputs it took to write it, and where its memory can be rebuilt from.

The broker fences a gate that lost its place in two ways. A successor with the same transactional id raises the
producer's epoch, which voids whatever the older one still sends. And the offsets travel with the consumer group's
generation (KIP-447), so a gate whose partitions went to another member cannot commit for them either.

A transaction that takes longer than the broker keeps one open is lost, and so may be the connection: one that saw its
only broker stop or start may never find it again (`spillway.producers.connection.TRANSACTIONAL`). Then a new one takes
the id, which ends that transaction one way or the other, and the gate begins again from what is committed. Should a
successor be at work by then, that one is fenced, as if this gate had been started after it: the id has one owner at any
time, and the group's generation decides whose offsets count.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from spillway.agents.live.gate.fencing import judge, ousted
from spillway.agents.models.execution import Runner
from spillway.lineage.errors import AbortedError, SilentError
from spillway.lineage.ports import Transactions
from spillway.producers.connection import TRANSACTIONAL
from spillway.producers.patience import flush, serve, unanswered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from spillway.lineage.ports import Commit, Outgoing

log = logging.getLogger(__name__)


# A call in a thread of its own, so that one which never returns holds up nobody.
#
# librdkafka (2.16) does not keep the time limit of `send_offsets_to_transaction`: it waits for the group's coordinator,
# and where that was dropped from the list of brokers while it restarted, it waits for good (its issues 5456 and 5511).


class Aside:
    """Makes one call after the other. Once one is given up, this is of no more use: its thread may wait forever."""

    def __init__(self, name: str) -> None:
        self._runner = Runner(name)
        self._under_way: Future[object] | None = None

    def call(self, call: Callable[[], object], seconds: float) -> None:
        """Make `call`, or await the one that is under way; raise what it raises.

        Raises a `KafkaException` that says to try again when it has not ended within `seconds`.
        """
        self._under_way = self._under_way or self._runner.begin(call)
        try:
            raised = self._under_way.exception(seconds)
        except TimeoutError:
            raise unanswered() from None
        self._under_way = None
        if raised is not None:
            raise raised

    def close(self) -> None:
        """Let the thread end, as soon as it can."""
        self._runner.end()


_SLICE_SECONDS = 0.5  # how long one call into librdkafka may block before we look at the clock again

# While the broker is still writing the markers of the transaction before, it answers "concurrent transactions", and
# librdkafka asks again after this back-off. Its default of 100 ms is what every transaction then takes; the markers
# take one or two.
RETRY_BACKOFF_MS = 1
RETRY_BACKOFF_MAX_MS = 20

TRANSACTION_TIMEOUT_MS = 10_000  # a dead gate's open transaction holds readers of its egress back for at most this
_PAUSE_SECONDS = 0.1  # before what was aborted is tried again
_LEAST_CALLS = 10  # without an answer, before a connection is given up: a process that stood still has not been waiting

_KEPT_SECONDS = TRANSACTION_TIMEOUT_MS / 1000
_LIST_SECONDS = 0.5  # who is asked may be the node that stands still
_LOOK_SECONDS = 1.0  # between looks which nodes there are, while all goes well
_OFFSETS = "__consumer_offsets"  # a topic that is there wherever there are groups


@dataclass(slots=True)
class Record:
    """One message to write. `offset` and `appended` are filled in once the broker has it, `error` where it will not."""

    topic: str
    partition: int | None  # None: any
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    offset: int = -1
    appended: int = 0  # its timestamp on the topic, in unix milliseconds
    error: KafkaError | None = None


@dataclass(slots=True)
class Turn:
    """What one transaction holds: the records to write and the positions in the input to commit with them."""

    records: list[Record] = field(default_factory=list)
    positions: list[TopicPartition] = field(default_factory=list)  # with metadata


class TransactionalWriter:
    """Writes turns as Kafka transactions under one transactional id."""

    def __init__(self, settings: Mapping[str, Any], transactional_id: str, *, max_message_bytes: int) -> None:
        self._id = transactional_id
        self._settings = {
            **settings,
            **TRANSACTIONAL,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "linger.ms": 0,
            "message.max.bytes": max_message_bytes,
            "retry.backoff.ms": RETRY_BACKOFF_MS,
            "retry.backoff.max.ms": RETRY_BACKOFF_MAX_MS,
        }
        self._connect()

    def _connect(self) -> None:
        self._producer: Any = Producer(self._settings, logger=log)
        self._nodes: frozenset[int] = frozenset()
        self._look_at = 0.0  # when to look again which there are
        self._aside = Aside(f"offsets of {self._id}")

    def open(self, within: float) -> None:
        """Take the transactional id: a predecessor's open transaction is aborted, and it can write no more."""
        until = time.monotonic() + within
        while True:
            left = until - time.monotonic()
            try:
                self._patiently(self._producer.init_transactions, "start its transactions", min(left, _KEPT_SECONDS))
            except SilentError as error:
                if time.monotonic() >= until:
                    raise
                self._give_up(error)
            else:
                self._note_nodes()
                return

    def _lacks_a_node(self) -> bool:
        """Whether a node that this connection knew has left the cluster, and others are there.

        It may have coordinated the gates' group. librdkafka (2.16) forgets a node that is not listed any more with all
        that it was asked, and then waits for good, while a new connection finds the new coordinator at once.
        """
        listed = self._listed()
        return bool(listed) and not self._nodes <= listed

    def _note_nodes(self) -> None:
        if time.monotonic() >= self._look_at:
            self._nodes = self._listed() or self._nodes
            self._look_at = time.monotonic() + _LOOK_SECONDS

    def _listed(self) -> frozenset[int]:
        try:
            return frozenset(self._producer.list_topics(_OFFSETS, _LIST_SECONDS).brokers)
        except KafkaException:
            return frozenset()

    def _give_up(self, error: SilentError) -> None:
        log.warning("%s; reconnecting", error)
        self.close()
        self._connect()

    def write(self, turn: Turn, group: Any, within: float, *, stand: bool = True) -> None:
        """Write `turn` in one transaction; unless it is to `stand`, readers of what is committed never see it.

        Raises `AbortedError` where nothing of it stands, `FencedError` when another gate has taken this one's place,
        and `SilentError` where the connection was given up without an answer: `open` is to be called next.
        """
        try:
            self._attempt(turn, group, min(within, _KEPT_SECONDS), stand=stand)
            self._note_nodes()
        except SilentError as error:
            self._give_up(error)
            raise SilentError(f"gate {self._id}: transaction abandoned: {error}") from error

    def _attempt(self, turn: Turn, group: Any, within: float, *, stand: bool) -> None:
        end, what = (
            (self._producer.commit_transaction, "commit")
            if stand
            else (self._producer.abort_transaction, "roll its transaction back")
        )
        until = time.monotonic() + within
        try:
            self._producer.begin_transaction()
            for record in turn.records:
                self._produce(record, until)
            if turn.positions:
                send = partial(self._producer.send_offsets_to_transaction, turn.positions, group, _SLICE_SECONDS)
                left = until - time.monotonic()
                self._patiently(partial(self._aside.call, send), "commit its offsets", left, self._lacks_a_node)
            self._await_stored(turn, until)
            self._patiently(end, what, until - time.monotonic())
        except KafkaException as error:
            self._fail(error, max(until - time.monotonic(), _SLICE_SECONDS))

    def _await_stored(self, turn: Turn, until: float) -> None:
        """Wait until the broker has each record by its own word, and end the transaction where it does not.

        librdkafka says that a commit does as much. But commits are known that left out what was not delivered.
        """
        self._patiently(partial(flush, self._producer), "write its records", until - time.monotonic())
        lost = [record for record in turn.records if record.offset < 0]
        if not lost:
            return
        said = {f"{record.topic}: {record.error.str() if record.error is not None else 'no report'}" for record in lost}
        told = ", ".join(sorted(said))
        text = f"gate {self._id}: {len(lost)} records were not stored ({told})"
        left = max(until - time.monotonic(), _SLICE_SECONDS)
        self._patiently(self._producer.abort_transaction, "abort its transaction", left)  # or learn of a successor
        # Where librdkafka, not the broker, gave a record up, what it sends next may well go the same way.
        given_up_here = any(record.error is not None and record.error.code() < 0 for record in lost)
        raise SilentError(text) if given_up_here else AbortedError(text)

    def hold(self, topic: str, within: float) -> None:
        """Ask the broker whether the transactional id is still ours: write to `topic`, and take it back.

        Raises `FencedError` when another gate has taken the id, and another `BrokerError` where that is not known: it
        does not connect anew then, as that would take the id from whoever has it.
        """
        until = time.monotonic() + within
        while True:
            left = until - time.monotonic()
            try:
                self._attempt(Turn([Record(topic, 0, None, None)]), None, left, stand=False)
            except AbortedError:  # of its own accord, which says nothing of the id
                if time.monotonic() >= until:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                return

    def close(self) -> None:
        """Let go of the producer. An open transaction is left to the broker, which aborts it."""
        self._producer.purge()
        self._aside.close()

    def _produce(self, record: Record, until: float) -> None:
        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                record.offset, record.appended = message.offset(), message.timestamp()[1]
            else:
                record.error = error

        place = {} if record.partition is None else {"partition": record.partition}
        while True:
            try:
                self._producer.produce(
                    record.topic, record.value, record.key, headers=list(record.headers), on_delivery=delivered, **place
                )
            except BufferError:  # the local queue is full: let some of it leave
                if time.monotonic() >= until:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the local queue stays full")) from None  # noqa: SLF001
                serve(self._producer, 0.01)
            else:
                return

    def _patiently(
        self, call: Callable[[float], object], what: str, within: float, in_vain: Callable[[], bool] = lambda: False
    ) -> None:
        """Call until it succeeds; what librdkafka says can be tried again is, within `within` seconds.

        Without an answer `in_vain` is asked whether there is no use in waiting any longer.
        """
        until = time.monotonic() + within
        for calls in count(1):
            try:
                call(_SLICE_SECONDS)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                vain = in_vain()
                if vain or (time.monotonic() >= until and calls >= _LEAST_CALLS):
                    why = "because a node is gone" if vain else f"within {max(within, 0.0):.0f} s"
                    raise SilentError(f"gate {self._id} could not {what} {why}: {error.args[0].str()}") from error
            else:
                return

    def _fail(self, error: KafkaException, within: float) -> None:
        cause = error.args[0]
        if cause.code() == KafkaError._FATAL:  # noqa: SLF001 - learned between two calls: `produce` does not name it
            cause = self._fatal(cause, within)
        if cause.fatal() or cause.code() == KafkaError._FENCED:  # noqa: SLF001
            raise judge(self._id, cause) from error
        if cause.txn_requires_abort():
            try:
                self._patiently(self._producer.abort_transaction, "abort its transaction", within)
            except KafkaException as second:
                raise judge(self._id, second.args[0]) from second
            if cause.code() == KafkaError.FENCED_INSTANCE_ID:  # the abort went well, so nobody has taken our place
                raise ousted(self._id, cause) from error
            raise AbortedError(f"gate {self._id}: transaction aborted: {cause.str()}") from error
        raise judge(self._id, cause) from error

    def _fatal(self, cause: KafkaError, within: float) -> KafkaError:
        """Return the error that made the producer useless: an abort is refused with it."""
        try:
            self._patiently(self._producer.abort_transaction, "abort its transaction", within)
        except KafkaException as named:
            return named.args[0]
        return cause


WRITE_SECONDS = 60.0  # a broker that restarts is back by then


class KafkaTransactions(Transactions):
    """The transactions of a gate as a port: each call blocks."""

    def __init__(self, writer: TransactionalWriter, topic: str, group: Callable[[], Any]) -> None:
        """`topic` is the input's, and `group` gives the metadata of its consumer."""
        self._writer = writer
        self._topic = topic
        self._group = group

    async def open(self) -> None:
        self._writer.open(WRITE_SECONDS)

    async def write(self, records: Sequence[Outgoing], offsets: Mapping[int, Commit]) -> list[tuple[int, int]]:
        positions = [TopicPartition(self._topic, partition, *commit) for partition, commit in offsets.items()]
        turn = Turn([Record(*record) for record in records], positions)
        self._writer.write(turn, self._group(), WRITE_SECONDS)
        return [(record.offset, record.appended) for record in turn.records]

    async def hold(self, topic: str) -> None:
        self._writer.hold(topic, WRITE_SECONDS)
