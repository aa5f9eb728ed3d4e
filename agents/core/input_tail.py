"""What a member of a stateful shard has read of its input: all that a promotion needs, so that it reads nothing then.

Of each partition it keeps, from the position of the newest durable version on, the records as they came; below it,
within the spans of that version's note (`spillway.checkpoint.notes`), only what deduplication and joins want to know:
envelopes, which are `Delivery`s without a value. Invariants:

* Nothing at or above the newest durable position is forgotten, whoever is primary: whatever base a promotion starts
  from, it is that version or a newer one, whose position is not lower and whose spans below this position lie within
  this one's (memory is only ever forgotten).
* Offsets rise; what the broker hands out again is not taken again.
* A position may lie beyond what this member has read: of a version of another member that reads faster, or beyond
  records that a base covers. Reading goes on where it was, and what it still finds in the spans is kept. What a base
  needs of its memory and was not read yet is `missing`, for the driver to read again.
* It is bounded: when `full`, its driver stops reading, and goes on when a version has become durable. What lies behind
  a part that waits in a join (`excused`) does not count: what it waits for may be what is not read.
* Where payloads can be read again (`most_values`), as in a join, values beyond that many bytes are not kept at all.

`strip` drops a record's value, `envelope` decodes its headers; both are the driver's. The second costs tens of
microseconds, so it is done in small bunches, by `settle`, off the way of a request.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from spillway.checkpoint.notes import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from spillway.agents.core.request import Delivery
    from spillway.checkpoint.dedup import Span

TAIL_RECORDS: Final = 120_000  # of all partitions, at or above the durable positions
TAIL_BYTES: Final = 64 << 20
VALUE_BYTES: Final = 32 << 20  # of values, in a join
RECORD_BYTES: Final = 1_200  # that a record takes in memory beside its value
_DROPPED: Final = -1  # in place of a value's size
_LOOK_THROUGH: Final = 1_000  # records below a position at which those between the spans are looked for


class Placed(Protocol):
    """A record of the input."""

    @property
    def offset(self) -> int: ...


R = TypeVar("R", bound=Placed)


class _Partition(Generic[R]):
    """One partition's part of the tail."""

    def __init__(self, position: int, note: str) -> None:
        self.position = position
        self.spans: tuple[Span, ...] = decode(note, position).spans
        self.last = position - 1
        self.records: deque[tuple[R, int]] = deque()  # with their values' sizes, from the position on
        self.loose: deque[R] = deque()  # below it, stripped, their headers not decoded
        self.below: deque[Delivery] = deque()  # below it, older than the loose ones
        self.look_through = _LOOK_THROUGH

    def forget(self) -> None:
        """Forget what lies between the spans below the position: one old span would else keep all that came since.

        Each time it has doubled: so it is at most twice what memory wants, for a constant time per record.
        """
        if len(self.below) + len(self.loose) >= self.look_through:
            self.below = deque(known for known in self.below if _within(known.offset, self.spans))
            self.loose = deque(record for record in self.loose if _within(record.offset, self.spans))
            self.look_through = max(_LOOK_THROUGH, 2 * (len(self.below) + len(self.loose)))


class InputTail(Generic[R]):
    """The tail of all partitions of one shard."""

    def __init__(
        self,
        *,
        strip: Callable[[R], R],
        envelope: Callable[[R], Delivery | None],
        most_records: int = TAIL_RECORDS,
        most_bytes: int = TAIL_BYTES,
        most_values: int | None = None,
        record_bytes: int = 0,
    ) -> None:
        """`envelope` gives None for a record that memory has no use for.

        `most_values`: bytes of values beyond which none are kept, if they can be read again. `record_bytes`: what a
        record takes beside its value.
        """
        self._strip = strip
        self._envelope = envelope
        self._most_records = most_records
        self._most_bytes = most_bytes
        self._most_values = most_values
        self._record_bytes = record_bytes
        self._partitions: dict[int, _Partition[R]] = {}
        self.held = 0  # records at or above the durable positions
        self.values = 0  # bytes of theirs that are kept
        self.excused = 0  # of those records, how many are there for a join's sake

    def start(self, partition: int, position: int, note: str) -> None:
        """Begin with a partition at its newest durable position."""
        self._partitions[partition] = _Partition(position, note)

    def recall(self, partition: int, remembered: Iterable[Delivery]) -> None:
        """Take what was read again of the note's spans, in offset order, before any record is appended."""
        self._partitions[partition].below.extend(remembered)

    def next(self, partition: int) -> int:
        return self._partitions[partition].last + 1

    @property
    def full(self) -> bool:
        held = self.held - self.excused
        return held >= self._most_records or self.values + held * self._record_bytes >= self._most_bytes

    @property
    def partitions(self) -> list[int]:
        return sorted(self._partitions)

    def append(self, partition: int, record: R, size: int) -> bool:
        """Take a record that was read, with its value's size; False if it was taken before."""
        part = self._partitions[partition]
        if record.offset <= part.last:
            return False
        part.last = record.offset
        if record.offset < part.position:
            if _within(record.offset, part.spans):
                part.loose.append(self._strip(record))
            return True
        self.held += 1
        if self._most_values is not None and self.values + size > self._most_values:
            part.records.append((self._strip(record), _DROPPED))
        else:
            part.records.append((record, size))
            self.values += size
        return True

    def trim(self, partition: int, position: int, note: str) -> None:
        part = self._partitions.get(partition)
        if part is None or position < part.position:
            return
        part.position = position
        part.spans = decode(note, position).spans
        lowest = part.spans[0][0] if part.spans else position
        while part.below and part.below[0].offset < lowest:
            part.below.popleft()
        while part.loose and part.loose[0].offset < lowest:
            part.loose.popleft()
        records = part.records
        while records and records[0][0].offset < position:
            record, size = records.popleft()
            self.held -= 1
            self.values -= max(size, 0)
            if _within(record.offset, part.spans):
                part.loose.append(self._strip(record))
        part.forget()

    def settle(self, most: int) -> bool:
        """Decode the headers of up to so many records below the positions; say whether some are left."""
        for part in self._partitions.values():
            while part.loose:
                if not most:
                    return True
                most -= 1
                delivery = self._envelope(part.loose.popleft())
                if delivery is not None:
                    part.below.append(delivery)
        return False

    def remembered(self, partition: int, position: int, spans: Iterable[Span]) -> Iterator[Delivery]:
        """Give what is known in the spans below a base's position, in offset order."""
        part, wanted = self._partitions[partition], tuple(spans)
        for known in part.below:
            if known.offset < position and _within(known.offset, wanted):
                yield known
        for record in (*part.loose, *(record for record, _ in part.records)):
            if record.offset >= position:
                return
            if _within(record.offset, wanted):
                delivery = self._envelope(self._strip(record))
                if delivery is not None:
                    yield delivery

    def missing(self, partition: int, position: int, spans: Iterable[Span]) -> tuple[Span, ...]:
        """Give where those records lie in the spans below a base's position that were not read yet."""
        start = self._partitions[partition].last + 1
        cut = ((max(start, first), min(end, position)) for first, end in spans)
        return tuple((first, end) for first, end in cut if first < end)

    def at(self, partition: int, offset: int) -> R | None:
        """Give one record at or above the durable position as it came; None where it, or its value, is not held."""
        records = self._partitions[partition].records
        if not records:
            return None
        # Offsets are nearly dense: the place is at most so far from the front, and gaps bring it nearer.
        index = min(offset - records[0][0].offset, len(records) - 1)
        while index >= 0 and records[index][0].offset > offset:
            index -= 1
        if index < 0:
            return None
        found, size = records[index]
        return found if found.offset == offset and size != _DROPPED else None

    def since(self, partition: int, position: int) -> Iterator[R]:
        """Give the records from a base's position on, as they came; those whose values are not kept, stripped."""
        for record, _ in self._partitions[partition].records:
            if record.offset >= position:
                yield record

    def __len__(self) -> int:
        return self.held + sum(len(part.loose) + len(part.below) for part in self._partitions.values())


def _within(offset: int, spans: tuple[Any, ...]) -> bool:
    return any(start <= offset < end for start, end in spans)
