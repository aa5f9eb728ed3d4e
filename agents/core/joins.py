"""Where the parts of a request meet: the join of a stage's predecessors, and, at the gate, of the terminals.

Each expected sender delivers one thing per request, a result or (by itself, or in a tombstone that names it) a loss;
the first one counts for it. `spillway.agents.core.join_rules` says what a join makes of what it has heard. Invariants:

* A request closes exactly once: ready, lost, or failed because time or room ran out. What comes for it later is late,
  and changes nothing.
* A closed request is remembered until every expected sender was heard *and* the consumer's own committed offset has
  passed all that was heard of it. Then every further copy is a repetition that deduplication catches; before, a crash
  makes some of the parts come again, and `spans` names where the others lie (they are given to `remember`).
* A sender may be heard no more (its stage gave up, or re-executed the request with another result): such requests are
  evicted oldest first, beyond a bound. Those forgotten most recently are recognised still; this is no part of the
  guarantee, it keeps a contradicting late report from waiting for partners that will not come again.
* Where a part turns out dead, the request is opened again (`reopen`), as if that part had never come.
* An id that comes again with another time of sending is another query (clients may use an id again after 10 minutes).
* Waiting requests are bounded in time: their deadline and a grace, 20 s at least. They are not bounded in number:
  beyond a bound in bytes they keep their envelopes alone (`PayloadRoom`).

One table belongs to one partition, as all messages of a request share it.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spillway.agents.core.join_rules import COMPLETE, OPEN, OVER, PAYLOAD_BYTES, TABLES, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.core.join_rules import Rule
    from spillway.agents.core.request import Delivery, Loss, Path
    from spillway.checkpoint.dedup import Span

# Payloads of the parts that wait in joins: how many bytes are kept, and how the others come back.
#
# The log is the buffer. Beyond `PAYLOAD_BYTES` a part that has to wait keeps its envelope (id, offset, hop, deadline)
# and drops its payload. When its request closes, complete or not, the request is parked: the driver is asked for the
# payloads by their offsets (`Fetch`), and the request goes on when the last of them is there. So what bounds a join is
# time, and for how long the topic keeps its records. Invariants:
#
# * A parked request is closed: what comes for it later is late. It holds its input offsets, and counts as under way.
# * Whoever parks many, or many bytes, is not given more records (`room`), so that what comes back finds room in the
#   queue and in memory.
# * A record that is gone is told as a loss; its request fails with that reason, whatever its join had made of it.
# * A request of which a part turns out dead meanwhile is dropped here: its live parts were heard again.


@dataclass(slots=True, frozen=True)
class Fetch:
    """One record of the input that is to be read again; `part` is what is left of it."""

    partition: int
    offset: int
    part: Delivery | None = field(default=None, compare=False, repr=False)


class PayloadRoom:
    """The bytes that waiting parts of one process may keep, and do."""

    def __init__(self, limit: int = PAYLOAD_BYTES) -> None:
        self.limit = limit
        self.held = 0

    def keep(self, entry: Entry, delivery: Delivery) -> None:
        """Keep the payload of a part that has to wait, or drop it where there is no room."""
        if delivery.dropped:
            return  # it has come again from its own join
        if self.held + delivery.size <= self.limit:
            self.held += delivery.size
            entry.held += delivery.size
        elif delivery.unusable is None:  # the text of a dead letter may still be needed
            delivery.payload = None
            delivery.dropped = True

    def free(self, entry: Entry) -> None:
        self.held -= entry.held
        entry.held = 0


class Parked:
    """A closed request of which payloads are missing; `loss` says why one of them will not come."""

    __slots__ = ("entry", "held", "loss", "missing", "verdict")

    def __init__(self, verdict: Verdict, entry: Entry, missing: dict[int, Delivery]) -> None:
        self.verdict = verdict
        self.entry = entry
        self.missing = missing
        self.held = sum(part.size for part in entry.results if not part.dropped)  # bytes of the payloads that are here
        self.loss: Loss | None = None

    @property
    def dead(self) -> bool:
        """Whether a part of it has turned out dead, so that it was opened again."""
        return self.entry.case is not None and self.entry.case.dead


class Refetch:
    """The parked requests of one partition."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._parked: dict[int, Parked] = {}  # by each offset that is missing
        self._wanted: list[Fetch] = []
        self.held = 0  # bytes of payloads that parked requests keep

    def park(self, verdict: Verdict, entry: Entry) -> bool:
        """Park a request that was closed; False if nothing of it is missing."""
        parts = [*entry.results, *(part for part, _ in entry.losses)]
        missing = {part.offset: part for part in parts if part.dropped}
        if not missing:
            return False
        for offset in self._parked.keys() & missing.keys():  # of a request that was opened again
            self._found(offset)
        parked = Parked(verdict, entry, missing)
        self.held += parked.held
        self._parked |= dict.fromkeys(missing, parked)
        self._wanted += [Fetch(self._partition, offset, part) for offset, part in missing.items()]
        return True

    def take(self) -> list[Fetch]:
        wanted, self._wanted = self._wanted, []
        return wanted

    def fetched(self, offset: int, payload: Any, loss: Loss | None) -> Parked | None:
        """Take a payload, with `loss` a stand-in for one that is gone; give the request if it was the last."""
        parked = self._parked.get(offset)
        if parked is None:
            return None  # it was asked for twice, as its request was opened again meanwhile
        part = parked.missing[offset]
        part.payload = payload
        part.dropped = loss is not None
        if loss is None:
            parked.held += part.size
            self.held += part.size
        parked.loss = parked.loss or loss
        self._found(offset)
        return None if parked.missing or parked.dead else parked

    def _found(self, offset: int) -> None:
        """Wait no longer for an offset. A request of which nothing is missing counts no more."""
        parked = self._parked.pop(offset)
        del parked.missing[offset]
        if not parked.missing:
            self.held -= parked.held

    def __len__(self) -> int:
        return len(self._parked)


@dataclass(slots=True, eq=False)
class Entry:
    """What was heard of one request."""

    request_id: str
    sent: float
    deadline: float
    path: Path
    expected: set[str]  # those not heard yet
    first: int
    last: int
    offsets: list[int] = field(default_factory=list)  # of the parts, until it closes; then nothing more is added
    results: list[Delivery] = field(default_factory=list)
    losses: list[tuple[Delivery, Loss | None]] = field(default_factory=list)
    held: int = 0  # bytes of payloads that it keeps while it waits
    case: Any = None  # what of it is not durable (`spillway.agents.core.speculation`)

    def hand_over(self) -> tuple[list[Delivery], list[tuple[Delivery, Loss | None]]]:
        """Give the results and losses of a closed request away; only who was heard is remembered, no payloads."""
        results, losses = self.results, self.losses
        self.results, self.losses = [], []
        return results, losses


# Of append time, so that a restart does not begin the wait anew: whoever restarts a stage that commits nothing, because
# of a half-heard request at the head of a partition, would otherwise do so for ever. Shorter than that patience (30 s).
MIN_WAIT_SECONDS = 20.0
READ_SECONDS = 10.0  # of our own time: after an outage all parts are old, and the partner may be further down the log
GRACE_SECONDS = 5.0  # past the deadline


def longest_wait(slo: float) -> float:
    """Seconds for which a request with that long to its deadline may wait for its parts, if none of them comes late."""
    return max(MIN_WAIT_SECONDS, slo + GRACE_SECONDS)


INCOMPLETE_LIMIT = 10_000  # closed requests of which a sender was not heard
RECENT_LIMIT = 4_096
NEVER = float("inf")
REUSE_SECONDS = 300.0  # half of the ingress's memory: ids sent further apart than this are two queries


class JoinTable:
    """The requests of one partition of which something was heard."""

    def __init__(
        self, rule: Rule, expected: Callable[[Path], tuple[str, ...]], room: PayloadRoom | None = None
    ) -> None:
        """`expected` gives whom a request with that path will be heard from; `room` is one for all of a process."""
        self._table = TABLES[rule.mode, rule.on_loss]
        self._expected = expected
        self._room = room if room is not None else PayloadRoom()
        self._entries: dict[str, Entry] = {}  # all, in the order of their first parts
        self._waiting: dict[str, Entry] = {}  # the open ones, in the same order
        self._incomplete: dict[str, Entry] = {}  # closed ones with somebody not heard
        self._retiring: deque[tuple[int, Entry]] = deque()  # everybody heard, by the offset of the last one
        self._expiries: list[tuple[float, int, Entry]] = []  # a heap; entries that closed meanwhile are skipped
        self._firsts: list[tuple[int, int, Entry]] = []  # the same by their first offsets
        self._recent: dict[str, float] = {}  # forgotten a short while ago: id -> time of sending
        self._serial = 0

    # What happens ----------------------------------------------------------------------------------------------

    def hear(self, now: float, delivery: Delivery, loss: Loss | None = None) -> tuple[Verdict, Entry | None]:
        """Take one sender's first copy; say what becomes of its request. The entry is None only where it is LATE.

        `loss` tells why a record that could not be used counts as a loss; a tombstone's own is in its payload.
        """
        entry = self._entries.get(delivery.request_id)
        if entry is not None and not self._same(entry, delivery):
            self._forget(entry)
            entry = None
        if entry is None:
            if self._forgotten(delivery):
                return Verdict.LATE, None
            entry = self._open(now, delivery)
        waiting = delivery.request_id in self._waiting
        news = self._note(entry, delivery)
        if not waiting or not news:
            return Verdict.LATE, None
        entry.offsets.append(delivery.offset)
        if delivery.offset < entry.first:  # only where a copy was kept (`spillway.agents.core.speculation`)
            entry.first = delivery.offset
            self._first(entry)
        if delivery.lost:
            entry.losses.append((delivery, loss))
        else:
            entry.results.append(delivery)
            entry.deadline = min(entry.deadline, delivery.deadline)
        if delivery.path:
            entry.path.update(delivery.path)
        verdict = self._judge(entry, OPEN if entry.expected else COMPLETE)
        if verdict is not Verdict.WAITING:
            self._close(entry)
        else:
            self._room.keep(entry, delivery)
        return verdict, entry

    def expire(self, now: float) -> list[tuple[Verdict, Entry]]:
        closed = []
        expiries = self._expiries
        while expiries and expiries[0][0] <= now:
            _, _, entry = heapq.heappop(expiries)
            if self._waiting.get(entry.request_id) is entry:
                self._close(entry)
                closed.append((self._judge(entry, OVER), entry))
        return closed

    def reopen(self, entry: Entry) -> None:
        """Forget a request of which something turned out dead, closed or not; what lives of it is heard again.

        It waits anew: what it waits for is made again by a recovery. It no longer counts as the oldest.
        """
        request_id = entry.request_id
        if self._entries.get(request_id) is entry:
            if self._waiting.pop(request_id, None) is not None:
                self._room.free(entry)
            self._forget(entry)

    def end(self) -> None:
        for entry in self._waiting.values():
            self._room.free(entry)

    def superfluous(self, delivery: Delivery) -> Entry | None:
        """Give the request that has no use for this part: it is closed, or has heard these senders. Else None."""
        entry = self._entries.get(delivery.request_id)
        if entry is None or not self._same(entry, delivery):
            return None
        if self.waits(entry) and not entry.expected.isdisjoint(delivery.lost or (delivery.predecessor,)):
            return None
        return entry

    def waits(self, entry: Entry) -> bool:
        return self._waiting.get(entry.request_id) is entry

    def next_expiry(self) -> float:
        return self._expiries[0][0] if self._expiries else NEVER

    # What recovery needs ---------------------------------------------------------------------------------------

    def remember(self, delivery: Delivery) -> None:
        """Note a first copy from below the committed offset: its request was closed."""
        entry = self._entries.get(delivery.request_id)
        if entry is not None and not self._same(entry, delivery):
            self._forget(entry)
            entry = None
        if entry is None:
            entry = self._entry(delivery)
            self._entries[entry.request_id] = entry
            self._keep(entry)
        self._note(entry, delivery)

    def committed(self, offset: int) -> None:
        """Forget the requests that nothing at or above `offset`, our committed one, can belong to."""
        retiring = self._retiring
        while retiring and retiring[0][0] < offset:
            _, entry = retiring.popleft()
            if self._entries.get(entry.request_id) is entry:
                self._forget(entry)
                self._recent[entry.request_id] = entry.sent
                if len(self._recent) > RECENT_LIMIT:
                    del self._recent[next(iter(self._recent))]

    def spans(self) -> list[Span]:
        """Where the records lie from which the closed requests can be rebuilt, in order."""
        waiting = self._waiting
        return [(e.first, e.last + 1) for e in self._entries.values() if e.request_id not in waiting]

    def knows(self, request_id: str) -> bool:
        return request_id in self._entries

    @property
    def oldest(self) -> int | None:
        firsts = self._firsts
        while firsts and self._waiting.get(firsts[0][2].request_id) is not firsts[0][2]:
            heapq.heappop(firsts)
        return firsts[0][0] if firsts else None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def __len__(self) -> int:
        return len(self._entries)

    # Inside ----------------------------------------------------------------------------------------------------

    def _open(self, now: float, delivery: Delivery) -> Entry:
        entry = self._entry(delivery)
        # A sender that its own path does not announce is one all the same.
        entry.expected.update(delivery.lost or (delivery.predecessor,))
        self._entries[entry.request_id] = self._waiting[entry.request_id] = entry
        self._serial += 1
        appended = delivery.appended or now
        expires = max(appended + MIN_WAIT_SECONDS, now + READ_SECONDS, delivery.deadline + GRACE_SECONDS)
        heapq.heappush(self._expiries, (expires, self._serial, entry))
        self._expiries = self._cleared(self._expiries)
        self._first(entry)
        return entry

    def _entry(self, of: Delivery) -> Entry:
        expected = set(self._expected(of.path))
        return Entry(of.request_id, of.sent, of.deadline, dict(of.path), expected, of.offset, of.offset)

    def _first(self, entry: Entry) -> None:
        self._serial += 1
        heapq.heappush(self._firsts, (entry.first, self._serial, entry))
        self._firsts = self._cleared(self._firsts)

    def _cleared(self, heap: list[Any]) -> list[Any]:
        if len(heap) <= 2 * len(self._waiting) + 256:
            return heap
        left = [each for each in heap if self._waiting.get(each[2].request_id) is each[2]]
        heapq.heapify(left)
        return left

    def _note(self, entry: Entry, delivery: Delivery) -> bool:
        """Cross the senders that this delivery speaks for off the list; say whether any of them was on it."""
        expected = entry.expected
        before = len(expected)
        expected.difference_update(delivery.lost or (delivery.predecessor,))
        if len(expected) == before:
            return False
        entry.last = max(entry.last, delivery.offset)
        if not expected:
            self._incomplete.pop(entry.request_id, None)
            self._retiring.append((entry.last, entry))
        return True

    def _judge(self, entry: Entry, column: int) -> Verdict:
        return self._table[bool(entry.results), bool(entry.losses)][column]

    def _close(self, entry: Entry) -> None:
        del self._waiting[entry.request_id]
        self._room.free(entry)
        if entry.expected:
            self._keep(entry)

    def _keep(self, entry: Entry) -> None:
        self._incomplete[entry.request_id] = entry
        if len(self._incomplete) > INCOMPLETE_LIMIT:
            self._forget(next(iter(self._incomplete.values())))

    def _forget(self, entry: Entry) -> None:
        del self._entries[entry.request_id]
        self._incomplete.pop(entry.request_id, None)

    def _same(self, entry: Entry, delivery: Delivery) -> bool:
        """Whether both are of one query; an open request is never taken for another's."""
        return abs(delivery.sent - entry.sent) <= REUSE_SECONDS or entry.request_id in self._waiting

    def _forgotten(self, delivery: Delivery) -> bool:
        sent = self._recent.get(delivery.request_id)
        return sent is not None and abs(delivery.sent - sent) <= REUSE_SECONDS
