"""The thread that reads a stage's input: it polls librdkafka, which fetches and heartbeats in threads of its own.

Nobody else may call the consumer: confluent-kafka (2.16) comes to a standstill where two threads do. What the
application's loop wants of it waits in a queue until the next look, at most `_POLL` seconds.

A chunk is handed to the application's loop when the agent has room for it. Until then the thread holds one chunk, and
the rest waits in librdkafka's queue.

What an assignment brings is read in two steps. The group's answer is accepted at once, without partitions, so that the
thread goes on polling while the owner takes over; the partitions follow with the positions that their owner has judged.

librdkafka resets nothing of its own accord. A partition that was paused stays so whoever is dealt it, so every
assignment ends its pause (`_assign`). A client that is being closed says on what it has to say, and is not heard
(`_heard_of`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spillway.agents.live.consumer.lenient import LenientReader
from spillway.lineage.errors import BrokerError
from spillway.lineage.ports import Bounds, Commit, Record
from spillway.producers.kafka.records import header_pairs, record_of
from spillway.producers.patience import UNKNOWN_TOPIC, gone

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from spillway.agents.live.groups import Membership

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_POLL: Final = 0.05  # seconds that one wait for records lasts
_TURN: Final = 0.05  # seconds between two looks at the group while nothing is to be read
_AHEAD: Final = 2  # chunks that may wait for the agent
_ASK: Final = 2.0  # seconds that one question to the broker may take
_AGAIN: Final = 0.5  # seconds before a damaged fetch is read again
_LEAVE: Final = 2.0  # seconds for leaving the group
_DEAF: Final = 20.0  # seconds out of the group after which librdkafka is taken to have lost its way to the coordinator

_OUT_OF_RANGE = frozenset(
    {KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001
)
_NO_THREAD: Final = KafkaError(KafkaError._DESTROY)  # noqa: SLF001
_DAMAGED = frozenset({KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION})  # noqa: SLF001
_REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001
        KafkaError._SSL,  # noqa: SLF001
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError.INVALID_COMMIT_OFFSET_SIZE,
    }
)  # time does not heal these


_Places = frozenset[tuple[int, int]]  # partitions with the offsets that are committed for them
Parts = list[tuple[int, list[Record]]]  # records by partition, in offset order


class Receiver(Protocol):
    """The consumer's half on the application's loop. The thread reads of it, and calls it there."""

    epoch: int
    taken: int

    def receive(self, epoch: int, parts: Parts) -> None:
        """Take a chunk, unless the epoch is over."""
        ...

    def out_of_range(self, epoch: int, partition: int, position: int) -> None:
        """Learn that the log does not have the position that is to be read next."""
        ...

    async def revoked(self) -> None:
        """Let go of all partitions; when it returns, nothing is committed any more."""
        ...

    async def assigned(self, partitions: frozenset[int]) -> None:
        """Take over exactly these partitions, then have the thread read them (`GroupReader.read`)."""
        ...

    def crashed(self, error: BaseException) -> None: ...


class GroupReader:
    """Reads one topic as a member of a group. Its methods are for the application's loop, in which it is made."""

    def __init__(self, membership: Membership, topic: str, receiver: Receiver) -> None:
        self._membership = membership
        self._topic = topic
        self._lenient = LenientReader(membership.settings, topic)
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self.leave_on_stop = True
        self._calls: deque[Callable[[], None]] = deque()  # what the loop wants of the thread
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._ended = asyncio.Event()
        self._open: set[asyncio.Future[Any]] = set()  # what the thread has to settle
        self._commits: list[tuple[_Places, Callable[[KafkaError | None], None]]] = []  # under way, the oldest first
        self._broken: KafkaError | None = None
        self._epoch: int | None = None  # of what is read; None while nothing is
        self._next: dict[int, int] = {}  # the offset to hand over next, by partition that is read
        self._held: dict[int, list[Record]] = {}
        self._holding = 0
        self._paused = False
        self._revoking = False
        self._out_since: float | None = time.monotonic()  # of the group; None while it has us
        self._handed = 0  # chunks given to the application's loop
        self._clients = 0  # made so far; the newest is ours
        self._consumer: Any = self._made()
        self._thread = threading.Thread(target=self._run, name="consumer", daemon=True)
        self._thread.start()

    def _made(self) -> Any:
        member = self._membership
        self._clients += 1
        return Consumer(
            {
                "client.id": member.instance,
                "group.id": member.group,
                "group.instance.id": member.instance,
                "partition.assignment.strategy": "roundrobin",  # static members in the order of their instance ids
                "session.timeout.ms": int(member.session * 1000),
                "heartbeat.interval.ms": int(member.heartbeat * 1000),
                "max.poll.interval.ms": int(max(member.rebalance, member.session) * 1000),
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",  # where reading begins, and what is out of range, its owner decides
                "check.crcs": True,
                "allow.auto.create.topics": False,
                "isolation.level": "read_committed" if member.committed_alone else "read_uncommitted",
                "fetch.wait.max.ms": int(member.fetch_wait * 1000),
                "fetch.message.max.bytes": member.fetch_bytes,  # per partition
                "queued.min.messages": member.chunk_records,
                "queued.max.messages.kbytes": max(1, member.fetch_bytes >> 8),  # four partitions' fetches
                "fetch.queue.backoff.ms": 10,
                "topic.metadata.refresh.fast.interval.ms": 100,
                "error_cb": partial(self._heard_of, self._clients, self._heed),
                "on_commit": partial(self._heard_of, self._clients, self._on_commit),
                **member.settings.confluent(),
            },
            logger=log,
        )

    def _heard_of(self, client: int, heed: Callable[..., None], *said: Any) -> None:
        """Heed what a client says, unless another has taken its place: it is closed in a thread of its own."""
        if client == self._clients:
            heed(*said)

    # For the loop ---------------------------------------------------------------------------------------------------

    def read(self, epoch: int, starts: Mapping[int, int]) -> None:
        """Read these partitions from these offsets on, unless the epoch is over by then."""
        self._call(lambda: self._begin(epoch, dict(starts)))

    def read_on(self, epoch: int, partition: int, offset: int | None) -> None:
        """Read a partition that was out of range from there on, or not any more (None)."""
        self._call(lambda: self._move(epoch, partition, offset))

    def wake(self) -> None:
        """Look again whether anything may be handed over."""
        self._woken.set()

    async def commit(self, offsets: Mapping[int, Commit]) -> bool:
        """Commit; False where it did not come about, or the offsets are not ours to commit any more."""
        error: KafkaError | None = await self._done(partial(self._commit, offsets))
        if error is not None:
            self._refuse(error, *UNKNOWN_TOPIC)
            log.info("%s: the offsets were not committed: %s", self._membership.group, error.str())
        return error is None

    async def committed(self, partitions: Iterable[int]) -> dict[int, Commit]:
        asked = [TopicPartition(self._topic, partition) for partition in partitions]
        return await self._answer(lambda: self._committed(asked)) if asked else {}

    def _committed(self, asked: list[TopicPartition]) -> dict[int, Commit]:
        places = self._consumer.committed(asked, timeout=_ASK)
        _raise_any(place.error for place in places)
        return {place.partition: Commit(place.offset, place.metadata or "") for place in places if place.offset >= 0}

    async def bounds(self, partitions: Iterable[int]) -> dict[int, Bounds]:
        return await self._answer(lambda: {partition: self._bounds(partition) for partition in partitions})

    def _bounds(self, partition: int) -> Bounds:
        start, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=_ASK)
        if start < 0 or end < 0:  # how a broker that is fenced calls an end
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001
        return Bounds(start, end)

    async def _answer(self, question: Callable[[], _T]) -> _T:
        """Ask until somebody answers; the watchdog bounds how long that is."""

        def ask(settle: Callable[[_T | KafkaError], None]) -> None:
            try:
                settle(question())
            except KafkaException as error:
                settle(error.args[0])

        while True:
            answer = await self._done(ask)
            if not isinstance(answer, KafkaError):
                return answer
            self._refuse(answer, KafkaError._DESTROY)  # noqa: SLF001
            log.warning("%s: %s", self._membership.group, answer.str())
            await asyncio.sleep(_TURN)

    async def _done(self, work: Callable[[Callable[[_T], None]], None]) -> _T | KafkaError:
        """Have the thread do something that ends by settling its result; an error once there is no thread."""
        done: asyncio.Future[_T | KafkaError] = self._loop.create_future()
        self._open.add(done)
        done.add_done_callback(self._open.discard)
        self._call(lambda: work(partial(self._post, _settle, done)))
        if self._ended.is_set():
            _settle(done, _NO_THREAD)
        return await done

    def _over(self) -> None:
        self._ended.set()
        for waiting in list(self._open):
            _settle(waiting, _NO_THREAD)

    def _refuse(self, error: KafkaError, *also: int) -> None:
        if error.code() in {*_REFUSED, *also}:
            raise self._lost(error)

    async def stop(self) -> None:
        """End the thread; for good, it leaves its group, and its partitions move on at once."""
        self._stopping.set()
        self._woken.set()
        await self._ended.wait()

    # The thread -----------------------------------------------------------------------------------------------------

    def _call(self, call: Callable[[], None]) -> None:
        self._calls.append(call)
        self._woken.set()

    def _post(self, call: Callable[..., object], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)

    def _run(self) -> None:
        try:
            self._subscribe()
            while not self._stopping.is_set():
                self._step()
            self._end()
        except Exception as error:  # noqa: BLE001 - whatever it is, the stage is deaf now and must end
            self._post(self._receiver.crashed, error)
        finally:
            self._post(self._over)

    def _subscribe(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _step(self) -> None:
        self._serve()
        full = self._handed - self._receiver.taken >= _AHEAD
        if self._held and not full:
            self._hand_over()
        elif full or (self._out_since is None and self._epoch is None):
            self._woken.wait(_TURN)
            self._take(self._poll(0, 1))
        else:
            self._take(self._poll(_POLL, self._membership.chunk_records))
        if self._broken is not None:
            raise self._lost(self._broken)
        if self._out_since is not None and time.monotonic() - self._out_since > _DEAF:
            self._join_anew()

    def _serve(self) -> None:
        self._woken.clear()
        while self._calls:
            self._calls.popleft()()

    def _poll(self, seconds: float, most: int) -> list[Any]:
        first = self._consumer.poll(seconds)
        if first is None:
            return []
        return [first, *(self._consumer.consume(most - 1, 0) if most > 1 else ())]

    def _take(self, messages: Sequence[Any]) -> None:
        for message in messages:
            error, partition = message.error(), message.partition()
            if error is not None and error.code() in _DAMAGED and partition in self._next:
                log.error("%s[%d]: a fetch was damaged; fetching it again: %s", self._topic, partition, error.str())
                time.sleep(_AGAIN)
                self._assign()
                break  # what follows is behind the damage
            if error is not None:
                self._heed(error, partition)
            elif message.offset() >= self._next.get(partition, message.offset() + 1):
                self._held.setdefault(partition, []).append(self._record(message))
                self._next[partition] = message.offset() + 1
                self._holding += 1
        full = self._holding >= self._membership.chunk_records and self._handed - self._receiver.taken >= _AHEAD
        if full and not self._paused:  # looking at the group brings a record each time
            self._consumer.pause(self._consumer.assignment())
            self._paused = True

    def _record(self, message: Any) -> Record:
        pairs: Any = header_pairs(message)
        if pairs is None:
            pairs = self._lenient.headers(message.partition(), message.offset())
        return record_of(message, pairs)

    def _hand_over(self) -> None:
        if self._paused:
            self._consumer.resume(self._consumer.assignment())
            self._paused = False
        parts, epoch = list(self._held.items()), self._epoch
        self._held, self._holding = {}, 0
        self._handed += 1
        self._post(self._receiver.receive, epoch, parts)

    def _heed(self, error: KafkaError, partition: int = -1) -> None:
        code = error.code()
        if error.fatal() or code in _REFUSED or code in UNKNOWN_TOPIC:
            self._broken = error
        elif code in _OUT_OF_RANGE and partition in self._next:
            self._post(self._receiver.out_of_range, self._epoch, partition, self._next.pop(partition))
        else:
            log.info("%s: %s", self._membership.group, error.str())

    def _lost(self, error: KafkaError) -> BrokerError:
        """The error that ends the stage; read on, it would skip as much of a new topic as it has read of one gone."""
        if error.code() in UNKNOWN_TOPIC:
            return BrokerError(gone(self._topic, error.str()))
        return BrokerError(f"{self._membership.group}: cannot join the group: {error.str()}")

    # Assignments ----------------------------------------------------------------------------------------------------

    def _on_assign(self, consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        consumer.assign([])
        if consumer is not self._consumer:
            return
        self._void()
        self._out_since = None
        reads = self._membership.reads
        mine = frozenset(place.partition for place in partitions if reads is None or reads(place.partition))
        self._on_loop(self._receiver.assigned(mine))

    def _on_revoke(self, consumer: Any, _partitions: Sequence[TopicPartition]) -> None:
        if consumer is self._consumer and not self._stopping.is_set():
            self._void()
            self._out_since = time.monotonic()
            self._give_up_commits()  # their answers would come with the next poll
            self._revoking = True
            done = self._on_loop(self._receiver.revoked())
            while not self._stopping.is_set() and not done.is_set():
                self._woken.wait(_TURN)
                self._serve()
            self._revoking = False
        consumer.unassign()

    def _on_loop(self, work: Coroutine[Any, Any, None]) -> threading.Event:
        done = threading.Event()

        async def run() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001 - without it the stage would stand still
                self._receiver.crashed(error)
            finally:
                done.set()
                self._woken.set()

        asyncio.run_coroutine_threadsafe(run(), self._loop)
        return done

    def _commit(self, offsets: Mapping[int, Commit], settle: Callable[[KafkaError | None], None]) -> None:
        """Commit: while partitions are revoked at once, else beside the reading."""
        places = [TopicPartition(self._topic, p, commit.offset, commit.metadata) for p, commit in offsets.items()]
        try:
            if self._revoking:
                _raise_any(place.error for place in self._consumer.commit(offsets=places, asynchronous=False))
                settle(None)
            else:
                self._consumer.commit(offsets=places)
                self._commits.append((_key(places), settle))
        except KafkaException as error:
            settle(error.args[0])

    def _on_commit(self, error: KafkaError | None, places: Sequence[TopicPartition]) -> None:
        key = _key(places)
        waiting = next((each for each in self._commits if each[0] == key), None)  # several may commit the same
        if waiting is not None:
            self._commits.remove(waiting)
            waiting[1](error or next((place.error for place in places if place.error is not None), None))

    def _give_up_commits(self) -> None:
        for _, settle in self._commits:
            settle(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
        self._commits.clear()

    def _void(self) -> None:
        """Read nothing, and drop what was read: the poll that ends an assignment may still return messages of it."""
        self._epoch = None
        self._next.clear()
        self._held, self._holding = {}, 0

    def _begin(self, epoch: int, starts: dict[int, int]) -> None:
        if epoch != self._receiver.epoch or self._out_since is not None:
            return  # another assignment is on its way
        self._void()
        self._epoch, self._next = epoch, starts
        self._assign()

    def _move(self, epoch: int, partition: int, offset: int | None) -> None:
        if epoch == self._epoch and offset is not None:
            self._next[partition] = offset
            self._assign()

    def _assign(self) -> None:
        """Read every partition anew from where it stands, whatever was before.

        librdkafka cannot seek one that was out of range, and keeps a pause from one assignment to the next.
        """
        places = [TopicPartition(self._topic, *place) for place in sorted(self._next.items())]
        self._consumer.assign(places)
        self._consumer.resume(places)
        self._paused = False

    def _join_anew(self) -> None:
        """Take another client; the one before may take its time to end."""
        log.warning("%s: not a member of the group for %.0f s; rejoining", self._membership.group, _DEAF)
        old, self._consumer = self._consumer, self._made()
        threading.Thread(target=old.close, name="closing", daemon=True).start()
        self._give_up_commits()
        self._subscribe()
        self._out_since = time.monotonic()

    def _end(self) -> None:
        """Leave the group, if for good: librdkafka does so for a static member that unsubscribes before it closes."""
        until = time.monotonic() + _LEAVE
        if self.leave_on_stop:
            self._consumer.unsubscribe()
            while self._consumer.memberid() and time.monotonic() < until:
                self._consumer.poll(0.01)
            if not self._consumer.memberid():
                log.info("%s: left the group %s", self._membership.instance, self._membership.group)
        self._consumer.close()


def _settle(waiting: asyncio.Future[Any], result: Any) -> None:
    if not waiting.done():
        waiting.set_result(result)


def _key(places: Iterable[TopicPartition]) -> _Places:
    return frozenset((place.partition, place.offset) for place in places)


def _raise_any(errors: Iterable[KafkaError | None]) -> None:
    for error in errors:
        if error is not None:
            raise KafkaException(error)
