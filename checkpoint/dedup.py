"""Which records of an input partition were already taken, and from where that knowledge can be read again.

A stage that crashed repeats what it had not committed, and a paused one that comes back (a zombie) repeats what its
successor has done since; so whatever a predecessor sends may come more than once. What keeps it apart:

* **Between stages**: a message carries its sender's hop: the sequence of the input that it answers and the offset that
  the sender had committed. All of a sender's messages for sequences below its committed offset stand in the log before
  the first message that states that offset. So a sequence below the highest committed offset seen, the *watermark*, is
  a repetition; one at or above it is looked up by request id. Memory is the sender's uncommitted window, no clock.
  A sender that takes a request again may decide otherwise: a result first, then a loss that also speaks for stages
  behind it (which the result never reached). So a message is compared with those that speak for the same stages; what
  overlaps is the join's to settle.
* **At the ingress**, whose sender is a client: an id that was seen within 10 minutes of append time is the same query,
  looking back over a bounded number of records. A record of many truths has further ids, each of which counts so.

Invariants that make recovery exact (the decisions are a function of the log, wherever reading starts):

* A decision about a record depends on earlier records only, and every record counts, taken or repeated. At the ingress
  a repetition prolongs the memory of its id; otherwise two root stages, or one before and after a restart, could
  decide differently.
* Memory goes by the consumer's *own committed offset*: a watermark raised, or an append time reached, by a record that
  is not yet committed forgets nothing, because after a crash that record has not been seen yet.
* `spans` covers every record below the committed offset whose memory matters to a record at or above it. The record
  that raised a watermark to W is covered, too: a dead message, or a repetition, is not remembered itself.
  (A lane gives a span of its own, so that a predecessor that has been silent for long does not make all that came
  since be read again.)
* With each id the hop of the copy that was taken is kept. Behind a stateful stage that copy may turn out dead, and a
  live one of the same message takes its place (`supersede`). Until that is known, later copies with other marks are
  noted (`later`) and kept by `spillway.agents.core.speculation`.
* A committed offset is a durable position: no stage lets an input offset go before what it led to is durable, or dead
  (rule 8). So whatever becomes of the message that tells it, a watermark is true; of a message below it, either a copy
  that is durable stands before it in the log, or it is dead. *A live copy that is still wanted never lies below.* And
  the watermark that a dead message has raised counts after a restart too (`rise`), as by it others were forgotten.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.lineage.hops import Hop

INGRESS_SECONDS = 600.0
INGRESS_RECORDS = 20_000  # per partition

Span = tuple[int, int]  # offsets from the first to before the second
# What a message says: that its sender has a result for this request, or whom else's loss it tells.
Said = str | tuple[str, tuple[str, ...]]


def said_by(request_id: str, predecessor: str, lost: tuple[str, ...]) -> Said:
    """Give what a message of that predecessor says; its own loss is compared with its result."""
    return (request_id, lost) if lost and lost != (predecessor,) else request_id


class HopLane:
    """What came from one predecessor on one partition."""

    def __init__(self) -> None:
        self.watermark = 0  # a sequence below it was taken before
        self._floor = 0  # the watermark as the records below our committed offset give it
        self._raised_at = -1  # our offset of the record that raised it to that; -1 while none has
        self._rises: deque[tuple[int, int]] = deque()  # (our offset, watermark that its record raised)
        self._entries: deque[tuple[int, Said, Hop]] = deque()  # (our offset, what, hop) of what was taken, in order
        self._ids: dict[Said, Hop] = {}

    def fresh(self, said: Said, offset: int, hop: Hop) -> bool:
        if self.watermark < hop.committed <= hop.sequence:  # as in `rise`, which costs a call
            self.watermark = hop.committed
            self._rises.append((offset, hop.committed))
        if hop.sequence < self.watermark:
            return False
        known = self._ids.get(said)
        if known is not None and known.sequence >= self.watermark:
            return False
        self._ids[said] = hop
        self._entries.append((offset, said, hop))
        return True

    def rise(self, offset: int, hop: Hop) -> None:
        """Note what a message says of its sender, and nothing else of it."""
        if self.watermark < hop.committed <= hop.sequence:  # no stage sends what it has committed past
            self.watermark = hop.committed
            self._rises.append((offset, hop.committed))

    def later(self, said: Said, offset: int, hop: Hop) -> None:
        """Note where a later copy lies, should it take the place of the one that was taken and may turn out dead.

        In place of `fresh`, while that is not known. No watermark is asked: a copy below it is dead, or comes after one
        that is durable, which then has the place.
        """
        self.rise(offset, hop)
        self._entries.append((offset, said, hop))

    def supersede(self, said: Said, hop: Hop) -> bool:
        """Take a copy that was kept, if none is taken at present. It may lie below the watermark by now."""
        if said in self._ids:
            return False
        self._ids[said] = hop
        return True

    def forget(self, said: Said, hop: Hop) -> None:
        """Forget a copy that was taken and turned out dead: the next one that lives is the first."""
        if self._ids.get(said) is hop:
            del self._ids[said]

    def committed(self, offset: int) -> None:
        """Forget what no record at or above `offset`, our committed one, can repeat."""
        rises = self._rises
        while rises and rises[0][0] < offset:
            self._raised_at, self._floor = rises.popleft()
        entries, ids, floor = self._entries, self._ids, self._floor
        while entries and entries[0][2].sequence < floor:
            _, said, hop = entries.popleft()
            if ids.get(said) is hop:
                del ids[said]

    def span(self) -> Span | None:
        """Where the records lie that are remembered, and the one that raised the floor: it may be none of these."""
        at = self._raised_at
        if not self._entries:
            return None if at < 0 else (at, at + 1)
        first, last = self._entries[0][0], self._entries[-1][0]
        return (first, last + 1) if at < 0 else (min(first, at), max(last, at) + 1)

    def __len__(self) -> int:
        return len(self._entries)


class IngressLane:
    """What came from clients on one partition.

    The n-th record repeats an earlier one, the m-th, if they have the same id, n - m is at most `limit`, and their
    append times differ by at most `seconds`.
    """

    def __init__(self, seconds: float = INGRESS_SECONDS, limit: int = INGRESS_RECORDS) -> None:
        self._seconds = seconds
        self._limit = limit
        self._records: deque[tuple[int, int, float, str]] = deque()  # (number, offset, appended, id), in order
        self._ids: dict[str, tuple[int, float]] = {}  # the last record with that id: its number and append time
        self._seen = 0
        self._ahead: deque[tuple[int, float]] = deque()  # (offset, appended) of the records not yet committed
        self._below = 0  # how many records lie below the committed offset
        self._newest = float("-inf")  # the highest append time of those

    def fresh(self, request_id: str, offset: int, appended: float) -> bool:
        number = self._seen
        self._seen = number + 1
        known = self._ids.get(request_id)
        self._ids[request_id] = (number, appended)
        self._records.append((number, offset, appended, request_id))
        self._ahead.append((offset, appended))
        return known is None or number - known[0] > self._limit or appended - known[1] > self._seconds

    def committed(self, offset: int) -> None:
        """Forget what no record at or above `offset`, our committed one, is compared with."""
        ahead, records, ids = self._ahead, self._records, self._ids
        while ahead and ahead[0][0] < offset:
            self._newest = max(self._newest, ahead.popleft()[1])
            self._below += 1
        while records:
            number, _, appended, request_id = records[0]
            old = self._newest - appended > self._seconds
            if number >= self._below or not (old or self._below - number > self._limit):
                return
            records.popleft()
            if ids[request_id][0] == number:
                del ids[request_id]

    def span(self) -> Span | None:
        return (self._records[0][1], self._records[-1][1] + 1) if self._records else None

    def __len__(self) -> int:
        return len(self._records)


class PartitionMemory:
    """All lanes of one input partition."""

    lane_type = HopLane

    def __init__(self, ingress: IngressLane | None = None) -> None:
        self._ingress = ingress if ingress is not None else IngressLane()
        self._lanes: dict[str, HopLane] = {}

    def fresh(
        self,
        request_id: str,
        offset: int,
        predecessor: str,
        hop: Hop | None,
        appended: float,
        lost: tuple[str, ...] = (),
    ) -> bool:
        """Whether this record is the first copy of what it says. Every record is asked about once, in offset order.

        Without a hop (a client's record, or one whose headers cannot be read) the id alone decides. `lost` names the
        stages whose loss it tells, none for a result.
        """
        if hop is None:
            return self._ingress.fresh(request_id, offset, appended)
        lane = self._lanes.get(predecessor)
        if lane is None:
            lane = self.opened(predecessor)
        return lane.fresh(said_by(request_id, predecessor, lost) if lost else request_id, offset, hop)

    def repeated(self, ids: Sequence[str], offset: int, appended: float) -> tuple[int, ...]:
        """Take the ids that a client's record has beside its own; return the places of those that came before.

        Each counts as a record does. Of every record they are asked about once, whether it is taken or not.
        """
        fresh = self._ingress.fresh
        return tuple(place for place, each in enumerate(ids) if not fresh(each, offset, appended))

    def opened(self, predecessor: str) -> HopLane:
        """Return one predecessor's lane; a new one where nothing came from it yet."""
        lane = self._lanes.get(predecessor)
        if lane is None:
            lane = self._lanes[predecessor] = self.lane_type()
        return lane

    def committed(self, offset: int) -> None:
        self._ingress.committed(offset)
        for lane in self._lanes.values():
            lane.committed(offset)

    def spans(self) -> list[Span]:
        """Where the records lie from which this memory can be rebuilt; may reach beyond the committed offset."""
        lanes: tuple[IngressLane | HopLane, ...] = (self._ingress, *self._lanes.values())
        found = []
        for lane in lanes:
            span = lane.span()
            if span is not None:
                found.append(span)
        return found

    def __len__(self) -> int:
        return len(self._ingress) + sum(map(len, self._lanes.values()))
