"""Queries out, outcomes in: one idempotent producer, one reply consumer, one thread.

The reply consumer starts at the ends that the egress partitions had before the first query left, so no reply can be
missed; it keeps its own position and belongs to no group. The egress carries everybody's outcomes: what nobody here
waits for is passed over by its request id alone, undecoded. Clients may share the egress instead of reading all of it
(`spillway.producers.client.shared`).
"""

from __future__ import annotations

import ctypes
import heapq
import logging
import os
import threading
import time
import weakref
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from confluent_kafka import KafkaError, KafkaException

from spillway.lineage.errors import BrokerError, SpillwayError, TopicError, UsageError, WireError
from spillway.lineage.headers import REQUEST_ID
from spillway.lineage.limits import DEFAULT_LIMITS, Limits
from spillway.lineage.values.codec import Decoder, decoded
from spillway.producers.client.shared import SharedReplies
from spillway.producers.cluster import DEAF_SECONDS, REFUSED_SECONDS, Reader, idempotent_producer, require_listening
from spillway.producers.kafka.records import header_pairs
from spillway.producers.schema_log import SchemaLog
from spillway.topology.topics import egress, ingress

if TYPE_CHECKING:
    from collections.abc import Collection

    from spillway.lineage.message import Outcome
    from spillway.producers.client.queries import Prepared
    from spillway.producers.connection import ClientSettings

log = logging.getLogger(__name__)

NO_ROOM = "too many queries wait for their outcomes, and this query's timeout passed"
Replies = Literal["all", "shared"]
ALL: Final[Replies] = "all"
SHARED: Final[Replies] = "shared"
_POLL_SECONDS = 0.05
_TURN_SECONDS = 0.01  # with shared replies, while a query may wait for its partition to be read
_SHARED_FETCH_MS = 50  # a broker holds back one fetch at a time: one for a new partition waits for it
_BY_KEY = -1  # the producer chooses the partition
_BATCH = 1000
_QUIET_SECONDS = 1.0  # without an outcome, though somebody waits, after which the broker is asked whether it is there
_LOOK_SECONDS = 1.0
_RENEWAL_SECONDS = 5.0
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001 - librdkafka's own codes
_ANSWER_SECONDS = 0.2  # short, as no expiry is told meanwhile
_QUEUED_QUERIES = 1_000_000  # librdkafka's own bound; ours, on what is in flight, comes first
_QUEUED_KBYTES = 1 << 20
_ENVELOPE_BYTES = 64 << 10  # headers, key and framing around a value of the largest size


class OutcomeTimeoutError(SpillwayError, TimeoutError):
    """No outcome came in time. The query may still be on its way, and its outcome still be written."""

    def __init__(self, text: str, request_id: str = "") -> None:
        super().__init__(text)
        self.request_id = request_id


class TooManyInFlightError(SpillwayError):
    """As many queries as the client may have in flight already wait for their outcomes."""


class ClientClosedError(SpillwayError):
    """The client was closed, or has failed for good; make another."""


class Waiter(Protocol):
    """Somebody who waits for one outcome. Called by the reply thread, so it must not block."""

    stays: bool  # whether it wants to hear of further outcomes under the same id

    def answered(self, outcome: Outcome, at: float) -> None:
        """Take the outcome, which arrived here `at` on the monotonic clock."""

    def failed(self, error: SpillwayError) -> None:
        """Hear that no outcome will be given to this waiter, and why."""


_exchanges: weakref.WeakSet[Exchange] = weakref.WeakSet()


def _keep() -> None:
    """Never let a fork free what librdkafka has: it ends the process by a fault, as its threads are not there."""
    for exchange in list(_exchanges):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(exchange))


os.register_at_fork(after_in_child=_keep)


class Exchange:
    """A pipeline's ingress and egress, as one client of it uses them. Safe for several threads.

    Making one connects, reads and completes the schema log, and finds the egress partitions' ends; that raises
    `BrokerError` or `TopicError` within about `timeout` seconds.
    """

    def __init__(
        self,
        settings: ClientSettings,
        pipeline: str,
        *,
        linger: float = 0.0,
        timeout: float = 30.0,
        limits: Limits = DEFAULT_LIMITS,
        reports: bool = False,
        replies: Replies = ALL,
    ) -> None:
        """Connect to a cluster.

        `replies`: as of `Client`.

        `reports`: waiters also hear that the broker has their query, by `stored()`, and of the record of the outcome,
        by `released(message)` before `answered`.
        """
        if replies not in (ALL, SHARED):
            raise UsageError(f"replies is {replies!r}: it must be {ALL!r} or {SHARED!r}")
        _exchanges.add(self)
        self._reports = reports
        self.passed_over = 0  # outcomes that were read and that nobody here waited for
        self._broken: SpillwayError | None = None
        self._ingress = ingress(pipeline)
        self._options = {
            "partitioner": "murmur2",  # as Java's clients, and spillway.lineage.keys
            "linger.ms": linger * 1000,
            "delivery.report.only.error": not reports,
            "message.max.bytes": limits.max_message_bytes + _ENVELOPE_BYTES,
            "queue.buffering.max.messages": _QUEUED_QUERIES,
            "queue.buffering.max.kbytes": _QUEUED_KBYTES,
        }
        self._settings = settings
        require_listening(settings.bootstrap, min(timeout, REFUSED_SECONDS))
        self._producer = self._connected(timeout)
        self._answered_at = 0.0  # when an outcome came last that was waited for
        self._look_at = 0.0  # when to look next whether the producer is stuck, and since when it seems to be
        self._stuck_since: float | None = None
        self._schemas = SchemaLog(settings, pipeline, timeout=timeout)
        self._decoder = Decoder(limits, self._schemas.open())
        self._shared: SharedReplies | None = None
        self._reader = self._reply_reader(pipeline, timeout, replies)
        self._lock = threading.RLock()
        # request id -> who waits, the number of the sending, and the partition if replies are shared
        self._waiting: dict[bytes, tuple[Waiter, int, int]] = {}
        self._expiries: list[tuple[float, int, bytes, str]] = []  # a heap; outlives its query, so it names the sending
        self._numbers = count()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"spillway-replies-{pipeline}", daemon=True)
        self._thread.start()

    def _reply_reader(self, pipeline: str, timeout: float, replies: Replies) -> Reader:
        topic = egress(pipeline)
        options: dict[str, Any] = {
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",  # should retention have overtaken us, the oldest that is there is the next
            "fetch.error.backoff.ms": 50,
            **({"fetch.wait.max.ms": _SHARED_FETCH_MS} if replies == SHARED else {}),
        }
        reader = Reader(self._settings, options)
        try:
            self.partitions, asked = (reader.partitions(name, timeout) for name in (topic, self._ingress))
            if asked != self.partitions:  # nobody may read the others
                raise TopicError(
                    f"{topic} has {self.partitions} partitions and {self._ingress} {asked}: a query keeps its "
                    "partition, so they need the same number; delete the pipeline's topics, with all that is in them "
                    "('spillway broker topics delete'), or serve it under another name"
                )
            if replies == SHARED:
                self._shared = SharedReplies(self._settings, pipeline, reader, self.partitions)
            else:
                reader.assign(reader.ends(topic, self.partitions, timeout))
        except SpillwayError:
            reader.close()
            raise
        return reader

    def _connected(self, timeout: float) -> Any:
        return idempotent_producer(self._settings, self._ingress, timeout, self._options, self._break)

    def send(self, query: Prepared, waiter: Waiter) -> Waiter:
        """Send a query and register who waits for its outcome until it expires; never blocks for long.

        Where its request id is in flight already nothing is sent, and the waiter who is there is returned instead of
        `waiter`. What goes wrong is said to the waiter, here or later.
        """
        with self._lock:
            if self._broken is not None:
                raise self._broken
            there = self._waiting.get(query.request_id)
            if there is not None:
                return there[0]
            number, shared = next(self._numbers), self._shared
            partition = _BY_KEY if shared is None else shared.partition(query.key)
            self._waiting[query.request_id] = waiter, number, partition
            heapq.heappush(self._expiries, (query.expires, number, query.request_id, query.hint))
            ready = shared is None or shared.admit(query, partition)
        if ready:
            self.produce(query)
        return waiter

    def landing(self) -> tuple[Collection[int], int] | None:
        """Where a query that has no key is to go, and the number of partitions; None where that does not matter."""
        return self._shared.landing() if self._shared is not None else None

    def produce(self, query: Prepared) -> None:
        """Hand a query over to the producer, unless nobody waits for it any more."""
        there = self._waiting.get(query.request_id)
        if there is None:
            return
        what = query.value, query.key, there[2]
        told = partial(self._delivered, query)
        try:
            self._producer.produce(self._ingress, *what, headers=query.headers, on_delivery=told)
        except (BufferError, KafkaException) as error:
            why = "too many queries wait to be sent" if isinstance(error, BufferError) else error.args[0].str()
            self._fail(query.request_id, BrokerError(f"cannot send to {self._ingress}: {why}"))

    def flying(self, request_id: bytes) -> Waiter | None:
        """Who waits for this request id, if anybody does."""
        there = self._waiting.get(request_id)
        return there[0] if there is not None else None

    def close(self) -> None:
        """Stop waiting and let the cluster go. Whoever still waits hears `ClientClosedError`."""
        self._closing.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def serve(self, seconds: float) -> None:
        """Serve what the broker said of queries, waiting so long for the first word; for a thread that waits for it."""
        self._producer.poll(seconds)

    def _delivered(self, query: Prepared, error: KafkaError | None, _message: Any) -> None:
        waiter: Any = self.flying(query.request_id)
        if error is None and waiter is not None:
            waiter.stored()
        elif error is not None and error.code() in _PURGED:
            self.produce(query)
        elif error is not None:
            text = f"{self._ingress} did not accept query {query.request_id.decode()}: {error.str()}"
            self._fail(query.request_id, BrokerError(text))

    # The reply thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        error: SpillwayError = ClientClosedError("the client was closed before the outcome came")
        try:
            while not self._closing.is_set() and self._broken is None:
                self._take_replies()
                self._producer.poll(0)
                self._heed_producer(time.monotonic())
                self._expire(time.monotonic())
            self._producer.flush(1.0)
        except Exception as unexpected:
            # Nobody else would learn that this thread has died: everyone who waits, or sends later, does so now.
            log.exception("the client's reply thread failed")
            error = ClientClosedError(f"the client failed: {unexpected!r}")
        finally:
            self._end(error)

    def _take_replies(self) -> None:
        if self._shared is not None:
            self._shared.turn(time.monotonic(), self.produce)
        messages = self._reader.read(self._poll_seconds(), _BATCH)
        at = time.monotonic()
        for message in messages:
            self._take(message, at)
        if self._waiting:
            self._reader.heed(_QUIET_SECONDS, _ANSWER_SECONDS)

    def _heed_producer(self, now: float) -> None:
        """Take another producer where this one has lost all brokers for good, and the reader still has some.

        That happens where the only broker restarts (librdkafka's issue 5301; docs/kafka-notes.md). What waits in the
        old one is sent again under its request id, so a query that did arrive is known by it and answered once.
        While queries are answered no broker is asked, as outcomes would have to wait for what it says.
        """
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        unanswered = len(self._producer) and now - self._answered_at >= _LOOK_SECONDS
        if not unanswered or self._reader.deaf or self._finds_broker():
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since >= DEAF_SECONDS:
            self._stuck_since = None
            self._renew_producer()

    def _finds_broker(self) -> bool:
        try:
            return bool(self._producer.list_topics(self._ingress, timeout=_ANSWER_SECONDS).brokers)
        except KafkaException:
            return False

    def _renew_producer(self) -> None:
        about = "%s: the producer found no broker for %.0f s; a new producer sends the waiting queries"
        log.warning(about, self._ingress, DEAF_SECONDS)
        old = self._producer
        try:
            self._producer = self._connected(_RENEWAL_SECONDS)
        except SpillwayError as error:
            log.warning("%s: no new producer yet: %s", self._ingress, error)
            return
        old.purge()
        old.flush(_ANSWER_SECONDS)

    def _poll_seconds(self) -> float:
        longest = _TURN_SECONDS if self._shared is not None and self._shared.may_hold else _POLL_SECONDS
        if not self._expiries:
            return longest
        return min(longest, max(0.0, self._expiries[0][0] - time.monotonic()))

    def _take(self, message: Any, at: float) -> None:
        error = message.error()
        if error is not None:
            # librdkafka goes on by itself after every consumer error; a query that it costs runs into its timeout.
            log.log(logging.DEBUG if error.retriable() else logging.WARNING, "reading outcomes: %s", error.str())
            return
        request_id = dict(header_pairs(message) or ()).get(REQUEST_ID)
        if request_id is None or (waiter := self.flying(request_id)) is None:
            self.passed_over += 1
            return
        try:
            outcome = self.decode(message.value())
        except WireError as unreadable:
            self._fail(request_id, unreadable)
            return
        if self._reports:
            reported: Any = waiter
            reported.released(message)
        if waiter.stays or self._forget(request_id) is not None:
            self._answered_at = at
            waiter.answered(outcome, at)

    def decode(self, value: bytes | None) -> Outcome:
        return decoded(self._decoder.released, value or b"", self._schemas.relearn)

    def _expire(self, now: float) -> None:
        while self._expiries and self._expiries[0][0] <= now:
            with self._lock:
                _, number, request_id, hint = heapq.heappop(self._expiries)
                there = self._waiting.get(request_id)
                if there is None or there[1] != number:
                    continue
                self._forget(request_id)
            name = request_id.decode()
            there[0].failed(OutcomeTimeoutError(f"no outcome of query {name} came in time{hint}", name))

    def _fail(self, request_id: bytes, error: SpillwayError) -> None:
        waiter = self._forget(request_id)
        if waiter is not None:
            waiter.failed(error)

    def _forget(self, request_id: bytes) -> Waiter | None:
        with self._lock:
            waiter, _, partition = self._waiting.pop(request_id, (None, 0, _BY_KEY))
            if waiter is not None and self._shared is not None:
                self._shared.done(partition)
            return waiter

    def _break(self, why: str) -> None:
        """The idempotent producer's session is lost: it sends nothing any more."""
        self._broken = ClientClosedError(f"the producer has failed permanently: {why}; create a new client")

    def _end(self, error: SpillwayError) -> None:
        with self._lock:
            self._broken = self._broken or error
            waiters = list(self._waiting.values())
            self._waiting.clear()
        for waiter, *_ in waiters:
            waiter.failed(self._broken)
        if self._shared is not None:
            self._shared.close()
        self._reader.close()
