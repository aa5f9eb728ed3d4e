"""`Log` on librdkafka: one consumer and one thread for all that a process follows.

Rules:

* The thread alone calls the consumer: confluent-kafka (2.16) comes to a standstill where two threads do. What a driver
  wants of it waits in a queue until the next look, at most `_POLL` seconds.
* A partition whose records wait to be accepted is paused, and sought when it goes on: so a long replay fills neither
  the consumer's queue nor the driver's loop, and nothing else waits behind it.
* librdkafka tells of a partition's end once, when it is reached. An end as of now is asked for.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from spillway.lineage.errors import BrokerError
from spillway.lineage.ports import Following, Log
from spillway.producers.cluster import Reader
from spillway.producers.kafka.records import record_of
from spillway.producers.patience import passes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.lineage.ports import Bounds, Record, Slot
    from spillway.producers.connection import ClientSettings

log = logging.getLogger(__name__)

_POLL: Final = 0.05  # seconds that one wait for records lasts
_AT_ONCE: Final = 200  # records that are handed over together
_AHEAD: Final = 3  # bunches of a partition that may wait to be accepted
_QUIET: Final = 5.0  # seconds without a record after which the cluster is asked whether it is there
_ASK: Final = 1.0
_OPTIONS: Final[dict[str, Any]] = {
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # what a log lacks is told of
    "isolation.level": "read_committed",
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 500,  # the broker answers as soon as there is a record
    "fetch.error.backoff.ms": 50,
    "fetch.queue.backoff.ms": 5,
    "fetch.message.max.bytes": 256 << 10,  # per partition: what one takes of the queue before others
    "queued.max.messages.kbytes": 4_096,
    "socket.nagle.disable": True,
    "check.crcs": True,
}
_LACKING: Final = frozenset(
    {KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001
)
_NOT_YET: Final = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - librdkafka's own codes
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)  # a broker that has just started does not know its topics yet


class KafkaFollowing(Following):
    """One partition that a `KafkaLog` reads. `read`, `waiting` and `paused` are the thread's, the rest the loop's."""

    def __init__(
        self,
        owner: KafkaLog,
        slot: Slot,
        start: int | None,
        accept: Callable[[Sequence[Record]], None],
        end: int | None,
        cut: Callable[[Bounds], None] | None,
    ) -> None:
        self.slot = slot
        self.position = start or 0
        self.read = OFFSET_BEGINNING if start is None else start
        self.waiting = 0  # bunches that were handed over and not accepted yet
        self.paused = False
        self.stopped = False
        self.end = end
        self._owner = owner
        self._accept = accept
        self._cut = cut
        self._wishes: dict[asyncio.Future[int], int | None] = {}  # with the end to reach, once it is known
        self._error: BrokerError | None = None

    async def caught_up(self) -> int:
        if self._error is not None:
            raise self._error
        if self.stopped:
            return self.position
        wish: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._wishes[wish] = None
        self._owner.ask_end(self, partial(self._wish, wish))
        return await wish

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            self._owner.unfollow(self)
            self._settle()

    # On the loop, for the thread -------------------------------------------------------------------------------

    def accept(self, records: Sequence[Record], position: int) -> None:
        """Take a bunch, which may be empty, and up to where the log was read with it."""
        try:
            if not self.stopped:
                self._take(records, position)
        finally:
            self._owner.accepted(self)

    def _take(self, records: Sequence[Record], position: int) -> None:
        if self.end is not None and position >= self.end:
            records = [record for record in records if record.offset < self.end]
            position = self.end
        if records:
            self._accept(records)
        self.position = max(self.position, position)
        self._settle()
        if self.position == self.end:
            self.stop()

    def lacks(self, bounds: Bounds) -> None:
        """Learn that the log does not have what comes next."""
        if self.stopped:
            return
        if self._cut is not None:
            self._cut(bounds)
            return
        topic, partition = self.slot
        self.fail(BrokerError(f"{topic}[{partition}] has offsets {bounds.start} to {bounds.end}, not {self.position}"))

    def fail(self, error: BrokerError) -> None:
        """Raise an error where somebody waits, or will."""
        self._error = error
        for wish in self._wishes:
            if not wish.done():
                wish.set_exception(error)
        self._wishes.clear()

    def _wish(self, wish: asyncio.Future[int], end: int) -> None:
        if wish in self._wishes:
            self._wishes[wish] = end if self.end is None else min(end, self.end)
            self._settle()

    def _settle(self) -> None:
        for wish, end in tuple(self._wishes.items()):
            if self.stopped or (end is not None and self.position >= end):
                del self._wishes[wish]
                if not wish.done():
                    wish.set_result(self.position if self.stopped or end is None else end)


class KafkaLog(Log):
    """Reads for the drivers of one loop, in which it is made."""

    def __init__(self, settings: ClientSettings) -> None:
        self._loop = asyncio.get_running_loop()
        self._bootstrap = settings.bootstrap
        self._reader = Reader(settings, _OPTIONS)
        self._followings: dict[Slot, KafkaFollowing] = {}  # the loop's
        self._followed: dict[Slot, KafkaFollowing] = {}  # the thread's: those of them that are read
        self._calls: deque[Callable[[], None]] = deque()
        self._questions: deque[Callable[[], bool]] = deque()  # to the cluster, each until it returns True
        self._error: BrokerError | None = None  # why nothing more is read
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def follow(
        self,
        slot: Slot,
        start: int | None,
        accept: Callable[[Sequence[Record]], None],
        *,
        end: int | None = None,
        cut: Callable[[Bounds], None] | None = None,
    ) -> KafkaFollowing:
        if slot in self._followings:
            self._followings[slot].stop()
        following = self._followings[slot] = KafkaFollowing(self, slot, start, accept, end, cut)
        if self._error is not None:
            following.fail(self._error)
        self._call(lambda: self._start(following))
        return following

    async def close(self) -> None:
        self._stopping.set()
        self._woken.set()
        await self._ended.wait()

    # For its followings, on the loop ---------------------------------------------------------------------------

    def unfollow(self, following: KafkaFollowing) -> None:
        del self._followings[following.slot]
        self._call(lambda: self._stop(following))

    def accepted(self, following: KafkaFollowing) -> None:
        self._call(lambda: self._accepted(following))

    def ask_end(self, following: KafkaFollowing, then: Callable[[int], None]) -> None:
        self._call(lambda: self._questions.append(lambda: self._tell_end(following, then)))

    def _fail(self, error: BrokerError) -> None:
        self._error = error
        for following in self._followings.values():
            following.fail(error)

    # The thread ------------------------------------------------------------------------------------------------

    def _call(self, call: Callable[[], None]) -> None:
        self._calls.append(call)
        self._woken.set()

    def _post(self, call: Callable[..., object], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._step()
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing more is read
            known = error if isinstance(error, BrokerError) else BrokerError(f"reading {self._bootstrap}: {error}")
            self._post(self._fail, known)
        finally:
            self._reader.close()
            self._post(self._ended.set)

    def _step(self) -> None:
        self._woken.clear()
        while self._calls:
            self._calls.popleft()()
        for _ in range(len(self._questions)):
            question = self._questions.popleft()
            if not question():
                self._questions.append(question)
        if not self._followed:
            self._woken.wait(_POLL)
            return
        bunches: dict[Slot, list[Record]] = {}
        for message in self._reader.read(_POLL, _AT_ONCE):
            self._take(message, bunches)
        for slot in tuple(bunches):
            self._hand_over(slot, bunches)
        self._reader.heed(_QUIET, _ASK)

    def _take(self, message: Any, bunches: dict[Slot, list[Record]]) -> None:
        slot = message.topic(), message.partition()
        following, error = self._followed.get(slot), message.error()
        if following is None or following.paused:
            return  # it was in the queue when reading ended
        if error is None:
            bunches.setdefault(slot, []).append(record_of(message))
            following.read = message.offset() + 1
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            following.read = message.offset()
            bunches.setdefault(slot, [])
        elif error.code() in _LACKING:
            self._stop(following)
            self._questions.append(lambda: self._lacks(following))
        elif not passes(error) and error.code() not in _NOT_YET:
            raise BrokerError(f"cannot read {slot[0]}[{slot[1]}] on {self._bootstrap}: {error.str()}")

    def _hand_over(self, slot: Slot, bunches: dict[Slot, list[Record]]) -> None:
        following = self._followed[slot]
        following.waiting += 1
        self._post(following.accept, bunches[slot], following.read)
        if following.waiting >= _AHEAD:
            following.paused = True
            self._reader.consumer.pause([TopicPartition(*slot)])

    def _accepted(self, following: KafkaFollowing) -> None:
        following.waiting -= 1
        if following.paused and not following.waiting and self._followed.get(following.slot) is following:
            following.paused = False
            self._reader.stop([TopicPartition(*following.slot)])  # what is in the queue of it is void
            self._assign(following)

    def _start(self, following: KafkaFollowing) -> None:
        self._followed[following.slot] = following
        self._assign(following)

    def _assign(self, following: KafkaFollowing) -> None:
        """Read it from where it was read to. librdkafka keeps a pause from one assignment to the next."""
        place = TopicPartition(*following.slot, following.read)
        self._reader.start([place])
        self._reader.consumer.resume([place])

    def _stop(self, following: KafkaFollowing) -> None:
        if self._followed.get(following.slot) is following:
            del self._followed[following.slot]
            self._reader.stop([TopicPartition(*following.slot)])

    def _lacks(self, following: KafkaFollowing) -> bool:
        bounds = self._reader.bounds(TopicPartition(*following.slot), _ASK)
        if bounds is not None:
            self._post(following.lacks, bounds)
        return bounds is not None

    def _tell_end(self, following: KafkaFollowing, then: Callable[[int], None]) -> bool:
        bounds = None if following.stopped else self._reader.bounds(TopicPartition(*following.slot), _ASK)
        if bounds is not None:
            self._post(then, bounds.end)
        return bounds is not None or following.stopped
