"""`Log` on librdkafka: one consumer and one thread for all that a process follows.

Rules:

* The thread alone calls the consumer: confluent-kafka (2.16) comes to a standstill where two threads do. What a driver
  wants of it waits in a queue until the next look, at most `_POLL` seconds.
* A partition whose records wait to be accepted is paused, and sought when it goes on: so a long replay fills neither
  the consumer's queue nor the driver's loop, and nothing else waits behind it.
* librdkafka tells of a partition's end once, when it is reached. An end as of now is asked for.
* A question that the cluster does not answer is asked again later, and reading goes on between.
* Before a partition is read its topic's metadata is asked for: it says what is missing, and librdkafka looks for the
  start of a partition whose leader it does not know half a second later.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from spillway.lineage.errors import BrokerError, CorruptError, TopicError
from spillway.lineage.ports import Log, Since
from spillway.producers.cluster import Reader
from spillway.producers.kafka.following import KafkaFollowing
from spillway.producers.kafka.records import record_of
from spillway.producers.patience import AnswerTime, passes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.lineage.ports import Bounds, Record, Slot
    from spillway.producers.connection import ClientSettings
    from spillway.producers.kafka.following import Post, Wish

log = logging.getLogger(__name__)

_POLL: Final = 0.05  # seconds that one wait for records lasts
_AT_ONCE: Final = 200  # records that are handed over together
_AHEAD: Final = 3  # bunches of a partition that may wait to be accepted
_AGAIN: Final = 0.5  # seconds until a question that was not answered is asked again
_CONNECT: Final = 3.0  # seconds without an answer after which whoever has begun to follow is told
_QUIET: Final = 5.0  # seconds without a record after which the cluster is asked whether it is there
_OPTIONS: Final[dict[str, Any]] = {
    "client.id": "log",
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # what a log lacks is told of
    "isolation.level": "read_committed",
    "fetch.min.bytes": 1,
    # The broker answers as soon as there is a record. A partition that is begun, or looked at, waits for the Fetch of
    # others that is under way.
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
    "fetch.queue.backoff.ms": 5,
    "fetch.message.max.bytes": 256 << 10,  # per partition: what one takes of the queue before others
    "queued.max.messages.kbytes": 4_096,
    "socket.nagle.disable": True,
    "check.crcs": True,
}
ALONE: Final[dict[str, Any]] = {"fetch.wait.max.ms": 500}  # where none waits for the Fetch of others
_LACKING: Final = frozenset(
    {KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001
)
_UNKNOWN: Final = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - librdkafka's own codes
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)  # of a topic that is gone, or of a broker that has just started


class KafkaLog(Log):
    """Follows partitions for one process. What it tells it tells on its own thread; see `through`.

    A context, for who has no loop. Raises UsageError for client settings that cannot be used.
    """

    def __init__(
        self,
        settings: ClientSettings,
        options: Mapping[str, Any] | None = None,
        *,
        poll: float = _POLL,
        post: Post | None = None,
        threads: _Threads | None = None,
    ) -> None:
        """`options`: librdkafka's, beside ours; `poll`: seconds of a wait. `post` and `threads`: see `through`."""
        self._settings = settings
        self._post = post
        self._threads = threads or _Threads(settings, {**_OPTIONS, **(options or {})}, poll)

    def through(self, post: Post) -> KafkaLog:
        """Return the same log for a caller who is told by `post`, as a loop's `call_soon_threadsafe`."""
        return KafkaLog(self._settings, post=post, threads=self._threads)

    def follow(
        self,
        slot: Slot,
        start: int | Since | None,
        accept: Callable[[Sequence[Record]], object],
        *,
        end: int | None = None,
        cut: Callable[[Bounds], object] | None = None,
        trouble: Callable[[BrokerError], object] | None = None,
    ) -> KafkaFollowing:
        with self._threads.lock:
            thread = self._threads.without(slot)
            following = KafkaFollowing(thread, self._post, slot, start, accept, end, cut, trouble)
            thread.slots[slot] = following
        thread.call(lambda: thread.begin(following))
        return following

    async def close(self) -> None:
        await asyncio.to_thread(self.shut)

    def shut(self, timeout: float = 5.0) -> None:
        """End reading. Nothing is told after that."""
        self._threads.end(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.shut()


class _Threads:
    """One thread, and another one for what is followed twice: a consumer has each partition once.

    There is another one, too, in place of one that has ended by a fault of the program.
    """

    def __init__(self, settings: ClientSettings, options: Mapping[str, Any], poll: float) -> None:
        self._make = partial(_Thread, settings, options, poll)
        self.lock = threading.Lock()
        self._all = [self._make()]

    def without(self, slot: Slot) -> _Thread:
        """Return one that does not follow a partition; under the lock."""
        thread = next((each for each in self._all if each.goes_on and slot not in each.slots), None)
        if thread is None:
            thread = self._make()
            self._all.append(thread)
        return thread

    def end(self, timeout: float) -> None:
        for thread in self._all:
            thread.end(timeout)


class _Thread:
    """The thread with the consumer. `call`, `slots`, `release` and `end` are for all, the rest is its own."""

    def __init__(self, settings: ClientSettings, options: Mapping[str, Any], poll: float) -> None:
        self._poll = poll
        self._bootstrap = settings.bootstrap
        self._reader = Reader(settings, options)
        self.slots: dict[Slot, KafkaFollowing] = {}  # those that are followed, or will be
        self._followed: dict[Slot, KafkaFollowing] = {}
        self._counts: dict[str, int] = {}  # partitions of the topics that were asked for
        self._calls: deque[Callable[[], object]] = deque()
        self._questions: deque[tuple[float, Callable[[], bool]]] = deque()  # when to ask, each until it returns True
        self._given = AnswerTime()
        self._asked_since = 0.0  # when the cluster was first asked in vain
        self.goes_on = True
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def call(self, call: Callable[[], object]) -> None:
        self._calls.append(call)
        self._woken.set()

    def end(self, timeout: float) -> None:
        self._stopping.set()
        self._woken.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def release(self, following: KafkaFollowing) -> None:
        """Let the partition be followed anew, behind what was called before."""
        if self.slots.get(following.slot) is following:
            del self.slots[following.slot]

    def begin(self, following: KafkaFollowing) -> None:
        self._followed[following.slot] = following
        self._ask(lambda: self._open(following))

    def stop(self, following: KafkaFollowing) -> None:
        if self._is_followed(following):
            self._close(following)
            del self._followed[following.slot]
            self.release(following)
            following.t_end()

    def rest(self, following: KafkaFollowing, *, resting: bool) -> None:
        if following.t_resting == resting:
            return
        following.t_resting = resting
        if following.t_open and not following.t_held:
            place = TopicPartition(*following.slot, following.t_read)
            if resting:
                self._reader.consumer.pause([place])
            else:
                self._reader.consumer.resume([place])
                if following.t_read >= 0:  # librdkafka's thread, which else may sleep for a second, is woken by that
                    with suppress(KafkaException):  # it is not being read yet
                        self._reader.consumer.seek(place)

    def wish(self, following: KafkaFollowing, wish: Wish) -> None:
        self._ask(lambda: self._tell_end(following, wish))

    def accepted(self, following: KafkaFollowing) -> None:
        following.t_waiting -= 1
        if following.t_held and not following.t_waiting and following.t_open:
            self._close(following)  # what is in the queue of it is void
            self._assign(following)

    # In rounds -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._step()
        except Exception as error:
            self.goes_on = False
            log.exception("reading %s has ended", self._bootstrap)
            for following in self._followed.values():
                following.t_fail(BrokerError(f"reading {self._bootstrap} has ended: {error!r}"))
        finally:
            self._reader.close()

    def _step(self) -> None:
        self._woken.clear()
        while self._calls:
            self._calls.popleft()()
        now = time.monotonic()
        for _ in range(len(self._questions)):
            at, question = self._questions.popleft()
            if at > now:
                self._questions.append((at, question))
            elif not question():
                self._questions.append((now + _AGAIN, question))
        if not self._awaits:
            self._woken.wait(self._poll)
        if not self._reads:
            return
        bunches: dict[Slot, list[Record]] = {}
        for message in self._reader.read(self._poll if self._awaits else 0.0, _AT_ONCE):
            self._take(message, bunches)
        for slot, records in bunches.items():
            self._hand_over(self._followed[slot], records)
        self._reader.heed(_QUIET, self._given.seconds)

    def _take(self, message: Any, bunches: dict[Slot, list[Record]]) -> None:
        slot = message.topic(), message.partition()
        following, error = self._followed.get(slot), message.error()
        if following is None or not following.t_open or following.t_held:
            return  # it was in the queue when reading ended
        if error is None:
            bunches.setdefault(slot, []).append(record_of(message))
            following.t_read = message.offset() + 1
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            following.t_read = message.offset()
            bunches.setdefault(slot, [])
        elif error.code() in _LACKING:
            self._close(following)
            self._ask(lambda: self._lacks(following))
        elif error.code() in _UNKNOWN:
            self._counts.pop(following.slot[0], None)
            self._close(following)
            self._ask(lambda: self._open(following), _AGAIN)
        elif not passes(error):  # librdkafka would go on behind a batch that is damaged
            self._close(following)
            following.t_fail(self._unreadable(f"{slot[0]}[{slot[1]}] on {self._bootstrap}", error))
            self._ask(lambda: self._open(following), _AGAIN)

    def _unreadable(self, where: str, error: KafkaError) -> BrokerError:
        if error.code() == KafkaError._BAD_MSG:  # noqa: SLF001
            return CorruptError(f"{where} holds a batch with a wrong CRC: {error.str()}")
        return BrokerError(f"cannot read {where}: {error.str()}")

    def _hand_over(self, following: KafkaFollowing, records: list[Record]) -> None:
        if following.end is not None and following.t_read >= following.end:
            records = [record for record in records if record.offset < following.end]
            following.t_read = following.end
        try:
            following.t_hand_over(records)
        except Exception as error:  # of who is told on this thread; others are told what they follow
            log.exception("%s[%d] is not followed any more", *following.slot)
            self._close(following)
            following.t_fail(BrokerError(f"{following.slot[0]} is not followed any more: {error!r}"))
            return
        if following.t_read == following.end:
            self.stop(following)
        elif following.t_waiting >= _AHEAD and following.t_open and not following.t_held:
            following.t_held = True
            self._reader.consumer.pause([TopicPartition(*following.slot)])

    # Partitions ------------------------------------------------------------------------------------------------

    @property
    def _awaits(self) -> bool:
        """Whether records may come; a call is heard at once where none may."""
        return any(each.t_open and not each.t_resting and not each.t_held for each in self._followed.values())

    @property
    def _reads(self) -> bool:
        return any(following.t_open for following in self._followed.values())

    def _is_followed(self, following: KafkaFollowing) -> bool:
        return self._followed.get(following.slot) is following

    def _assign(self, following: KafkaFollowing) -> None:
        """Read it from where it was read to. librdkafka keeps a pause from one assignment to the next."""
        place = TopicPartition(*following.slot, following.t_read)
        self._reader.start([place])
        (self._reader.consumer.pause if following.t_resting else self._reader.consumer.resume)([place])
        following.t_open, following.t_held = True, False

    def _close(self, following: KafkaFollowing) -> None:
        if following.t_open:
            following.t_open = False
            self._reader.stop([TopicPartition(*following.slot)])

    # Questions -------------------------------------------------------------------------------------------------

    def _ask(self, question: Callable[[], bool], later: float = 0.0) -> None:
        self._questions.append((time.monotonic() + later if later else 0.0, question))

    def _open(self, following: KafkaFollowing) -> bool:
        """Begin to read a partition, once its topic is known."""
        topic, partition = following.slot
        if not self._is_followed(following):
            return True
        try:
            count = self._count(topic)
        except BrokerError as error:
            following.t_say(error)
            return False
        if count is None:
            return False
        if partition >= count:
            few = f"topic {topic} on {self._bootstrap} has {count} partitions, but {partition + 1} are needed"
            following.t_say(TopicError(f"{few}: is the pipeline file the one that it is served from?"))
            return False
        if isinstance(following.start, Since) and following.t_read < 0 and not self._find(following, following.start):
            return False
        if following.end is not None and following.t_read >= following.end:
            self._hand_over(following, [])
        else:
            self._assign(following)
        return True

    def _count(self, topic: str) -> int | None:
        """Return a topic's partitions; None while nobody says. Raises BrokerError, which says why."""
        if topic not in self._counts:
            began = time.monotonic()
            try:
                listed = self._reader.consumer.list_topics(topic, timeout=self._given.seconds).topics.get(topic)
            except KafkaException as error:
                self._unanswered(began, error.args[0])
                return None
            self._answered(began)
            if listed is not None and listed.error is not None and not listed.error.retriable():
                raise self._reader.no_topic(topic, listed.error)
            if listed is None or not listed.partitions:
                return None
            self._counts[topic] = len(listed.partitions)
        return self._counts[topic]

    def _find(self, following: KafkaFollowing, start: Since) -> bool:
        """Learn where a partition's records of a time begin; where there are none, it is the end that was before."""
        bounds = self._bounds(following)
        if bounds is None:
            return False
        place, began = TopicPartition(*following.slot, int(1000 * start.at)), time.monotonic()
        try:
            (found,) = self._reader.consumer.offsets_for_times([place], timeout=self._given.seconds)
        except KafkaException as error:
            self._unanswered(began, error.args[0])
            return False
        self._answered(began)
        if found.error is not None:
            return False
        following.t_read = found.offset if found.offset >= 0 else bounds.end
        return True

    def _lacks(self, following: KafkaFollowing) -> bool:
        bounds = self._bounds(following) if self._is_followed(following) else None
        if bounds is not None:
            following.t_lacks(bounds)
        return bounds is not None or not self._is_followed(following)

    def _tell_end(self, following: KafkaFollowing, wish: Wish) -> bool:
        if not self._is_followed(following) or following.t_error is not None:
            following.t_refuse(wish)
            return True
        bounds = self._bounds(following) if following.t_open else None
        if bounds is not None:
            following.t_reach(bounds.end if following.end is None else min(bounds.end, following.end), wish)
        return bounds is not None

    def _bounds(self, following: KafkaFollowing) -> Bounds | None:
        began = time.monotonic()
        bounds = self._reader.bounds(TopicPartition(*following.slot), self._given.seconds)
        if bounds is None:
            self._given.late()
        else:
            self._given.answered(time.monotonic() - began)
        return bounds

    def _answered(self, began: float) -> None:
        self._given.answered(time.monotonic() - began)
        self._reader.answered()
        self._asked_since = 0.0

    def _unanswered(self, began: float, error: KafkaError) -> None:
        """Tell who has begun to follow, and is not read, that the cluster does not answer."""
        self._given.late()
        self._reader.unanswered()
        self._asked_since = self._asked_since or began
        if not self._reads:
            self._reader.consumer.poll(0.0)  # fills what it says is wrong
        if time.monotonic() - self._asked_since < _CONNECT:
            return
        trouble = self._reader.trouble(error)
        for following in self._followed.values():
            if not following.t_open:
                following.t_say(trouble)
