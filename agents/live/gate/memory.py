"""What a gate reads when partitions come to it: where its predecessor stopped, and what that one has released.

Nothing but Kafka is asked, so any gate can go on where another was killed. The order of the steps is what makes it
safe, for partitions that another gate may have written a moment ago:

1. The committed offsets are read as *stable* ones: the broker withholds them while a transaction that moves them is
   open. From here on an older owner cannot commit for these partitions (the group's generation has moved on).
2. The version logs, where there are any, are read to the ends that they have *after* that: the older owner may have
   known a copy to be dead, and committed past it, before this gate has read so.
3. The end of each egress partition is taken after 1 too, and everything below it is read as committed records; a
   transaction that is still open below it is waited for.
4. The core is told what its predecessor had released, then the input below the committed offset that still matters.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition

from spillway.agents.live.gate.fencing import UnheardError
from spillway.agents.live.spans import Span, bounds, read_spans
from spillway.lineage.errors import BrokerError
from spillway.lineage.ports import Bounds
from spillway.producers.patience import UnansweredError, patiently

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from confluent_kafka import Consumer

    from spillway.agents.core.gate import GateCore
    from spillway.agents.core.joins import Fetch
    from spillway.agents.live.admin import Admin
    from spillway.agents.live.gate.wire import Wire
    from spillway.agents.live.spans import SpanReader
    from spillway.agents.run.inputs import Inputs

log = logging.getLogger(__name__)


# Reading reports again whose payloads the gate's core has dropped: in a thread, while the gate goes on polling.
#
# Its group would put out a gate that does not poll. The requests are parked meanwhile, and hold their offsets.

_AT_ONCE = 200  # reports
_WITHIN = 60.0  # seconds for one stretch

Answer = tuple["Fetch", Any]


class Rereading:
    """Reads records of one topic again, a batch at a time; `reader` makes what reads them. For one thread."""

    def __init__(self, reader: Callable[[], SpanReader]) -> None:
        self._make = reader
        self._reader: SpanReader | None = None
        self._asked: deque[Fetch] = deque()
        self._read: queue.SimpleQueue[list[Answer] | BaseException] = queue.SimpleQueue()
        self.busy = False

    def ask(self, fetches: Iterable[Fetch]) -> None:
        self._asked.extend(fetches)
        if self._asked and not self.busy:
            self.busy = True
            batch = [self._asked.popleft() for _ in range(min(_AT_ONCE, len(self._asked)))]
            threading.Thread(target=self._run, args=(batch,), name="rereading", daemon=True).start()

    def take(self) -> list[Answer]:
        """Give what was read, with None in place of a message that is gone. Raises what reading has raised."""
        if not self.busy:
            return []
        try:
            read = self._read.get_nowait()
        except queue.Empty:
            return []
        self.busy = False
        if isinstance(read, BaseException):
            raise read
        self.ask(())
        return read

    def _run(self, batch: list[Fetch]) -> None:
        try:
            self._reader = self._reader or self._make()
            found = self._reader.records([(fetch.partition, fetch.offset) for fetch in batch], _WITHIN)
            self._read.put([(fetch, found.get((fetch.partition, fetch.offset))) for fetch in batch])
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is taken
            self._read.put(error)


NONE = -1
_GROUP_SECONDS = 20.0  # for the group's word; a transaction that is open withholds it for at most half of that


@dataclass(slots=True, frozen=True)
class Place:
    """Where a partition of the input stands: the next offset to take (NONE: none was committed), and its note."""

    partition: int
    offset: int
    note: str


_NOTHING = Span(0, 0)


class Memory:
    """Fills a gate's core with what is known of partitions that come to it."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        consumer: Consumer,
        admin: Admin,
        *,
        outcomes: str,
        egress: str,
        wire: Wire,
        inputs: Inputs,
        read_logs: Callable[[float], object] = lambda _within: None,
    ) -> None:
        """`read_logs` reads the version logs to their ends, within so many seconds."""
        self._inputs = inputs
        self._settings = settings
        self.consumer = consumer  # another one, when the gate has to join anew
        self._admin = admin
        self._outcomes = outcomes
        self._egress = egress
        self._wire = wire
        self._read_logs = read_logs

    def load(self, core: GateCore, partitions: Sequence[int], within: float) -> list[Place]:
        """Assign `partitions` to `core`, memory and all, and return where each one is to be read from.

        One whose log lost what comes next is stopped: it is neither assigned nor returned.

        Raises `UnheardError` where the group does not answer, after which another consumer may do it, and another
        `BrokerError` where something else does not come `within` seconds.
        """
        until = time.monotonic() + within
        places = self._committed(partitions, min(within, _GROUP_SECONDS))
        self._read_logs(within)
        inputs = bounds(self._admin, self._outcomes, partitions, within)
        released = bounds(self._admin, self._egress, partitions, within)
        starts: list[Place] = []
        again: dict[int, Span] = {}  # of the egress
        below: list[list[Span]] = []  # of the input, for each of `starts`
        for place in places:
            there = inputs[place.partition]
            if not self._admits(place, there):
                continue
            start = max(place.offset, there.start)
            spans, egress = core.assign(place.partition, start, place.note)
            starts.append(Place(place.partition, start, place.note))
            again[place.partition] = _within(Span(egress, released[place.partition].end), released[place.partition])
            below.append([_within(Span(*span), there) for span in spans])
        for message in read_spans(self._settings, self._egress, again, until - time.monotonic()):
            self._recall(core, message)
        for nth in zip_longest(*below, fillvalue=_NOTHING):
            wanted = {place.partition: span for place, span in zip(starts, nth, strict=True)}
            for message in read_spans(self._settings, self._outcomes, wanted, until - time.monotonic()):
                delivery = self._wire.envelope(message)
                if delivery is not None:
                    core.remember(delivery)
        return starts

    def _committed(self, partitions: Sequence[int], within: float) -> list[Place]:
        try:
            return committed_places(self.consumer, self._outcomes, partitions, within)
        except UnansweredError as error:
            raise UnheardError(str(error)) from error

    def _admits(self, place: Place, there: Span) -> bool:
        position = None if place.offset == NONE else place.offset
        return self._inputs.admits(place.partition, position, Bounds(there.start, there.end))

    def read_on(self, partition: int, position: int, within: float) -> int | None:
        """Judge a partition whose log does not have `position`: where it is read on, None where it is stopped."""
        there = bounds(self._admin, self._outcomes, [partition], within)[partition]
        return max(position, there.start) if self._admits(Place(partition, position, ""), there) else None

    def _recall(self, core: GateCore, message: Any) -> None:
        partition, offset = message.partition(), message.offset()
        found = self._wire.released(message)
        if found is None:
            log.warning("%s[%d] holds a foreign record at %d", self._egress, partition, offset)
        else:
            core.recall(partition, offset, *found, message.timestamp()[1] / 1000)


def committed_places(consumer: Consumer, topic: str, partitions: Iterable[int], within: float) -> list[Place]:
    """The group's stable committed offsets with their notes; `consumer` must be of the group and read_committed."""
    asked = [TopicPartition(topic, partition) for partition in partitions]
    answered = patiently(lambda s: consumer.committed(asked, timeout=s), "read its committed offsets", within)
    for position in answered:
        if position.error is not None:
            raise BrokerError(f"no committed offset of {topic}[{position.partition}]: {position.error.str()}")
    return [Place(p.partition, max(p.offset, NONE), p.metadata or "") for p in answered]


def _within(span: Span, there: Span) -> Span:
    return Span(max(span.start, there.start), min(span.end, there.end))
