"""`Log` on librdkafka: one consumer and one thread for all that a process follows.

Rules:

* Only the thread calls the consumer: confluent-kafka (2.16) deadlocks where two threads do. Calls from elsewhere wait
  in a queue for the next round, at most `_POLL` seconds, or `_CALM` where nothing was asked for a while.
* A partition is paused while many of its records wait to be accepted, and read on from there afterwards. So a long
  replay fills neither the consumer's queue nor the driver's loop, and delays no other partition.
* librdkafka reports the end of a partition once, when it is reached. The end as of now is asked for.
* A question that the cluster does not answer is asked again later; reading goes on in between.
* A topic's metadata is asked for before a partition of it is read: it shows what is missing, and librdkafka delays the
  first request for a partition whose leader it does not know by half a second.
* An error that nobody foresaw ends nothing: another consumer goes on where records were handed over last.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from spillway.lineage.errors import BrokerError, CorruptError, TopicError
from spillway.lineage.ports import Log, Since
from spillway.producers.cluster import Reader
from spillway.producers.kafka.following import KafkaFollowing
from spillway.producers.kafka.records import record_of
from spillway.producers.patience import UNKNOWN_TOPIC, AnswerTime, passes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.lineage.ports import Bounds, Record, Slot
    from spillway.producers.connection import ClientSettings
    from spillway.producers.kafka.following import Post

log = logging.getLogger(__name__)

_POLL: Final = 0.05  # seconds that one wait for records lasts
_CALM: Final = 0.25  # seconds that it lasts where nothing was asked for `_SETTLES`: each wakeup costs something
_SETTLES: Final = 5.0  # seconds
_REST: Final = 0.5  # seconds that one wait for a call lasts, where no record may come
_AT_ONCE: Final = 200  # records that are handed over together
_AHEAD: Final = 3 * _AT_ONCE  # `weight` of a partition's records that may wait to be accepted
_AGAIN: Final = 0.5  # seconds until a question that was not answered is asked again
_CONNECT: Final = 3.0  # seconds without an answer after which whoever has begun to follow is told
_END: Final = 5.0  # seconds that the thread is given to end
_LATEST_MS: Final = 1 << 62  # no record is of a later time; a negative one would ask Kafka for something else
_QUIET: Final = 5.0  # seconds without a record after which the cluster is asked whether it is there
_OPTIONS: Final[dict[str, Any]] = {
    "client.id": "log",
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # what a log lacks is told of
    "isolation.level": "read_committed",
    "fetch.min.bytes": 1,
    # The broker answers as soon as there is a record. A partition that is begun, or looked at, waits for the Fetch of
    # others that is under way; and every process asks so often while nothing comes.
    "fetch.wait.max.ms": 250,
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


@dataclass(slots=True)
class _Bunch:
    """Records of one partition, and the offset after them."""

    records: list[Record] = field(default_factory=list)
    end: int = 0


class KafkaLog(Log):
    """Follows partitions for one process. It calls followers on its own thread; see `through`.

    A context manager, for callers without a loop. Raises UsageError for client settings that cannot be used.
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
        """Return the same log, which calls followers through `post`, such as a loop's `call_soon_threadsafe`."""
        return KafkaLog(self._settings, post=post, threads=self._threads)

    def follow(
        self,
        slot: Slot,
        start: int | Since | None,
        accept: Callable[[Sequence[Record]], object],
        *,
        cut: Callable[[Bounds], object] | None = None,
        trouble: Callable[[BrokerError], object] | None = None,
    ) -> KafkaFollowing:
        with self._threads.lock:
            thread = self._threads.without(slot)
            following = KafkaFollowing(thread, self._post, slot, start, accept, cut, trouble)
            thread.slots[slot] = following
        thread.call(lambda: thread.begin(following))
        return following

    async def close(self) -> None:
        await asyncio.to_thread(self.shut)

    def shut(self) -> None:
        """End reading. No follower is called after that."""
        self._threads.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.shut()


class _Threads:
    """One thread, and another one for what is followed twice: a consumer reads each partition once."""

    def __init__(self, settings: ClientSettings, options: Mapping[str, Any], poll: float) -> None:
        self._make = partial(_Thread, settings, options, poll)
        self.lock = threading.Lock()
        self._all = [self._make()]

    def without(self, slot: Slot) -> _Thread:
        """Return one that does not follow a partition; under the lock."""
        thread = next((each for each in self._all if slot not in each.slots), None)
        if thread is None:
            thread = self._make()
            self._all.append(thread)
        return thread

    def end(self) -> None:
        for thread in self._all:
            thread.end()


class _Thread:
    """The thread with the consumer. Other threads use `call`, `slots`, `release` and `end` only."""

    def __init__(self, settings: ClientSettings, options: Mapping[str, Any], poll: float) -> None:
        self._poll = poll
        self._bootstrap = settings.bootstrap
        self._connect = partial(Reader, settings, options)
        self._reader = self._connect()
        self.slots: dict[Slot, KafkaFollowing] = {}  # those that are followed, or will be
        self._followed: dict[Slot, KafkaFollowing] = {}
        self._counts: dict[str, int] = {}  # partitions of the topics that were asked for
        self._calls: deque[Callable[[], object]] = deque()
        self._asked = 0.0  # when somebody last asked for something
        self._questions: deque[tuple[float, Callable[[], bool]]] = deque()  # when to ask, each until it returns True
        self._given = AnswerTime()
        self._asked_since = 0.0  # when the cluster was first asked in vain
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def call(self, call: Callable[[], object]) -> None:
        self._calls.append(call)
        self._woken.set()

    def end(self) -> None:
        self._stopping.set()
        self._woken.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_END)

    def release(self, following: KafkaFollowing) -> None:
        """Forget a partition, so that it can be followed anew."""
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

    def pause(self, following: KafkaFollowing, *, paused: bool) -> None:
        if following.t_paused == paused:
            return
        following.t_paused = paused
        if following.t_open and not following.t_held:
            if paused:
                self._reader.consumer.pause([TopicPartition(*following.slot)])
            else:
                self._read_on(following)

    def wait(self, following: KafkaFollowing, then: Callable[[int], object]) -> None:
        self._ask(lambda: self._tell_end(following, then))

    def accepted(self, following: KafkaFollowing, weight: int) -> None:
        following.t_waiting -= weight
        if following.t_held and not following.t_waiting:
            following.t_held = False
            if following.t_open and not following.t_paused:
                self._read_on(following)

    def _read_on(self, following: KafkaFollowing) -> None:
        """Resume a partition from where it was read to. What is in the queue of it is void."""
        place = TopicPartition(*following.slot, following.t_read)
        self._reader.consumer.resume([place])
        if following.t_read < 0:
            return
        try:
            self._reader.consumer.seek(place)  # wakes librdkafka's thread, which else may sleep for a second
        except KafkaException:  # it is not being read yet
            self._close(following)
            self._assign(following)

    # In rounds -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        turn = self._step
        while not self._stopping.is_set():
            try:
                turn()
                turn = self._step
            except Exception:
                log.exception("reading %s failed; beginning again in %g s", self._bootstrap, _AGAIN)
                self._stopping.wait(_AGAIN)
                turn = self._begin_again
        self._reader.close()

    def _begin_again(self) -> None:
        """Read on with another consumer."""
        old, self._reader = self._reader, self._connect()
        for following in self._followed.values():
            following.t_open = False
            self._ask(partial(self._open, following))
        old.close()

    def _step(self) -> None:
        self._woken.clear()
        while self._calls:
            self._calls.popleft()()
        now = time.monotonic()
        for _ in range(len(self._questions)):
            at, question = self._questions.popleft()
            if at > now:
                self._questions.append((at, question))
                continue
            done, again = False, 2 * _AGAIN  # of one that raises: others are read before it is asked again
            try:
                done = question()
                again = _AGAIN
            finally:
                if not done:
                    self._questions.append((now + again, question))
        if not self._awaits:
            self._woken.wait(self._poll if self._questions else _REST)
        if not self._reads:
            return
        bunches: dict[Slot, _Bunch] = {}
        for message in self._reader.read(self._within(now) if self._awaits else 0.0, _AT_ONCE):
            self._take(message, bunches)
        for slot, bunch in bunches.items():
            self._hand_over(self._followed[slot], bunch)
        self._reader.heed(_QUIET, self._given.seconds)

    def _within(self, now: float) -> float:
        """Seconds that a wait for records lasts, and so how long a call may have to wait."""
        if self._questions or now - self._asked < _SETTLES or any(each.t_held for each in self._followed.values()):
            return self._poll
        return max(self._poll, _CALM)

    def _take(self, message: Any, bunches: dict[Slot, _Bunch]) -> None:
        slot = message.topic(), message.partition()
        following, error = self._followed.get(slot), message.error()
        if following is None or not following.t_open or following.t_held:
            return  # it was in the queue when reading ended
        if error is None:
            bunch = bunches.setdefault(slot, _Bunch())
            bunch.records.append(record_of(message))
            bunch.end = message.offset() + 1
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            bunches.setdefault(slot, _Bunch()).end = message.offset()
        elif error.code() in _LACKING:
            self._close(following)
            self._ask(partial(self._lacks, following))
        elif error.code() in UNKNOWN_TOPIC:
            self._counts.pop(following.slot[0], None)
            self._close(following)
            self._ask(partial(self._open, following), _AGAIN)
        elif not passes(error):  # librdkafka would go on behind a batch that is damaged
            self._close(following)
            following.t_fail(self._unreadable(f"{slot[0]}[{slot[1]}] on {self._bootstrap}", error))
            self._ask(partial(self._open, following), _AGAIN)

    def _unreadable(self, where: str, error: KafkaError) -> BrokerError:
        if error.code() == KafkaError._BAD_MSG:  # noqa: SLF001
            return CorruptError(f"{where} holds a batch with a wrong CRC: {error.str()}")
        return BrokerError(f"cannot read {where}: {error.str()}")

    def _hand_over(self, following: KafkaFollowing, bunch: _Bunch) -> None:
        following.t_read = bunch.end
        try:
            following.t_hand_over(bunch.records)
        except Exception as error:  # raised by a follower that is called on this thread; the others go on
            log.exception("%s[%d] is not followed any more", *following.slot)
            self._close(following)
            following.t_fail(BrokerError(f"{following.slot[0]} is not followed any more: {error!r}"))
            return
        if following.t_waiting >= _AHEAD and following.t_open and not following.t_held:
            following.t_held = True
            self._reader.consumer.pause([TopicPartition(*following.slot)])

    # Partitions ------------------------------------------------------------------------------------------------

    @property
    def _awaits(self) -> bool:
        """Whether records may come; a call is heard at once where none may."""
        return any(each.t_open and not each.t_paused and not each.t_held for each in self._followed.values())

    @property
    def _reads(self) -> bool:
        return any(following.t_open for following in self._followed.values())

    def _is_followed(self, following: KafkaFollowing) -> bool:
        return self._followed.get(following.slot) is following

    def _assign(self, following: KafkaFollowing) -> None:
        """Read it from where it was read to. librdkafka keeps a pause from one assignment to the next."""
        place = TopicPartition(*following.slot, following.t_read)
        self._reader.start([place])
        (self._reader.consumer.pause if following.t_paused else self._reader.consumer.resume)([place])
        following.t_open, following.t_held = True, False

    def _close(self, following: KafkaFollowing) -> None:
        if following.t_open:
            following.t_open = False
            self._reader.stop([TopicPartition(*following.slot)])

    # Questions -------------------------------------------------------------------------------------------------

    def _ask(self, question: Callable[[], bool], later: float = 0.0) -> None:
        self._asked = time.monotonic()
        self._questions.append((self._asked + later if later else 0.0, question))

    def _open(self, following: KafkaFollowing) -> bool:
        """Begin to read a partition, once its topic is known."""
        topic, partition = following.slot
        if not self._is_followed(following) or following.t_open:
            return True
        try:
            count = self._count(topic)
        except BrokerError as error:
            (following.t_report if isinstance(error, TopicError) else following.t_fail)(error)  # time heals the one
            return False
        if count is None:
            return False
        if partition >= count:
            few = f"topic {topic} on {self._bootstrap} has {count} partitions, but {partition + 1} are needed"
            following.t_report(TopicError(f"{few}: is the pipeline file the one that it is served from?"))
            return False
        if isinstance(following.start, Since) and following.t_read < 0 and not self._find(following, following.start):
            return False
        self._assign(following)
        return True

    def _count(self, topic: str) -> int | None:
        """Return the number of a topic's partitions, None while the cluster does not answer.

        Raises TopicError where there is no such topic, BrokerError where it may not be read.
        """
        if topic not in self._counts:
            began = time.monotonic()
            try:
                listed = self._reader.consumer.list_topics(topic, timeout=self._given.seconds).topics.get(topic)
            except KafkaException as error:
                self._unanswered(began, error.args[0])
                return None
            self._answered(began)
            if listed is not None and listed.error is not None and not listed.error.retriable():
                if listed.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise self._unreadable(topic, listed.error)
                raise self._reader.no_topic(topic, listed.error)
            if listed is None or not listed.partitions:
                return None
            self._counts[topic] = len(listed.partitions)
        return self._counts[topic]

    def _find(self, following: KafkaFollowing, start: Since) -> bool:
        """Set the offset to read from to the first record of a time, or to the end that was asked for before."""
        bounds = self._bounds(following)
        if bounds is None:
            return False
        at = min(max(0, int(1000 * start.at)), _LATEST_MS)
        place, began = TopicPartition(*following.slot, at), time.monotonic()
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

    def _tell_end(self, following: KafkaFollowing, then: Callable[[int], object]) -> bool:
        if not self._is_followed(following) or following.t_error is not None:
            following.t_refuse(then)
            return True
        bounds = self._bounds(following) if following.t_open else None
        if bounds is not None:
            following.t_reach(bounds.end, then)
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
        """Report to followers whose partitions are not read yet that the cluster does not answer."""
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
                following.t_report(trouble)
