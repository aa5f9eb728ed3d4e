"""Partitions read without a loop and without a group, as a command does.

The log's thread reads ahead into a bounded queue of calls; the reader makes them.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress
from functools import partial
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any, Final

from spillway.lineage.errors import BrokerError, TopicError, UnreachableError
from spillway.lineage.ports import Since
from spillway.producers.closing import Closing
from spillway.producers.cluster import Reader
from spillway.producers.kafka.log import KafkaLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from spillway.lineage.ports import Record, Slot
    from spillway.producers.connection import ClientSettings

PATIENCE: Final = 30.0  # seconds without anything, after which a cluster is given up
_AHEAD: Final = 8  # bunches of records that may wait, each of some MB at most
_POLL_SECONDS: Final = 0.1
_SOON: Final = 0.01  # seconds: of waiting, at the broker before it tells of an end, and here before this can end
_LATEST: Final = Since(1e15)  # later than any record


class Reading(Closing):
    """Reads some partitions from their beginnings, their ends, or a time on, and then what is appended. A context.

    Raises BrokerError, TopicError: at once where time does not heal what is wrong, else after `patience` seconds in
    which nothing has come.
    """

    def __init__(
        self,
        settings: ClientSettings,
        slots: Iterable[Slot],
        *,
        from_end: bool = False,
        since: float | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """`from_end`: all that is appended after this returns is read. `since`: unix seconds."""
        self._where = settings.bootstrap
        self._patience = patience
        self._calls: Queue[Callable[[], object]] = Queue(_AHEAD)
        self._closed = False
        self._came: list[Record] = []
        self._unread = set(slots)
        self._trouble: BrokerError | None = None  # which time may heal
        self._log = KafkaLog(settings, None if from_end else {"fetch.wait.max.ms": int(1000 * _SOON)}, poll=_SOON)
        start = _LATEST if from_end else None if since is None else Since(since)
        # The highest first, as an error names the first that a topic does not have.
        self._followings = {
            slot: self._log.follow(
                slot, start, partial(self._put, self._add), trouble=partial(self._put, self._judge, slot)
            )
            for slot in sorted(self._unread, reverse=True)
        }
        if from_end:
            try:
                self._came = list(self.to_the_end())
            except BaseException:
                self.close()
                raise

    def read(self, seconds: float = _POLL_SECONDS) -> list[Record]:
        """Return what has come, after at most so many seconds; each partition's records in order."""
        with suppress(Empty):
            self._calls.get(not self._came, seconds)()
            for _ in range(self._calls.qsize()):
                self._calls.get_nowait()()
        came, self._came = self._came, []
        return came

    def to_the_end(self) -> Iterator[Record]:
        """Yield what the partitions have now and was not read yet, and it may be some that is appended meanwhile."""
        self._unread = set(self._followings)
        for slot, following in self._followings.items():
            following.when_read(partial(self._put, self._reach, slot))
        heard = time.monotonic()
        while self._unread:
            records = self.read()
            if records:
                heard = time.monotonic()
            elif time.monotonic() - heard > self._patience:
                topic, partition = min(self._unread)
                raise self._trouble or BrokerError(
                    f"{topic}[{partition}] on {self._where} could not be read to its end"
                )
            yield from records

    def leave(self, slot: Slot) -> None:
        """Read no more of a partition, whose end then counts as reached; what was read already may still follow."""
        self._unread.discard(slot)
        if slot in self._followings:
            self._followings.pop(slot).stop()

    def close(self) -> None:
        self._closed = True
        with suppress(Empty):
            while True:  # the thread may wait for room
                self._calls.get_nowait()
        self._log.shut()

    def _add(self, records: Sequence[Record]) -> None:
        self._came += records

    def _reach(self, slot: Slot, _end: int) -> None:
        self._unread.discard(slot)

    def _judge(self, slot: Slot, error: BrokerError) -> None:
        begun = slot not in self._unread or self._followings[slot].position > 0
        if not isinstance(error, UnreachableError) and not (begun and isinstance(error, TopicError)):
            raise error
        self._trouble = error  # also of a topic that a broker which has just started does not know yet

    def _put(self, call: Callable[..., object], *arguments: Any) -> None:
        """Queue a call for the reader. Runs on the log's thread, which waits while the queue is full."""
        if not self._closed:
            self._calls.put(partial(call, *arguments))


def slots_of(settings: ClientSettings, topic: str, patience: float = PATIENCE) -> list[Slot]:
    """Return all partitions of a topic. Raises BrokerError, TopicError."""
    with closing(Reader(settings, {})) as reader:
        return [(topic, number) for number in range(reader.partitions(topic, patience))]
