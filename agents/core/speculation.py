"""What a partition's records rest on, while that is not durable: which copy counts, and what is taken back.

Behind a stateful stage records are served before the states that they rest on are durable (HAMS, section IV-D). A
record whose version turns out dead must leave no trace, and what its stage says in its place must not pass for a
repetition. One object belongs to one partition, and knows of each record that is not decided its *copy*, and of each
request that rests on one its *case*: the copies that it was decided by, and those kept because they came later.
Invariants (rules 7 and 8; "open" is what is neither durable nor dead):

* A record that is dead when it comes is done, and not remembered. Only what it says of its sender's commits counts.
* No record is discarded in favour of one that may still die. While the copy that was taken is open, later copies of
  the message with other marks are kept (with the same marks they share its fate). While a request is open, whatever
  comes too late for it is kept: another sender's part, another way's report. Their input offsets wait with them.
* When a copy dies, its request is given up: what was not sent is not sent, and whoever gets the rest discards it, as
  it carries the dead mark. All that lives of the request, the parts that it was made from and those kept for it, comes
  again in the order of their offsets. So the request ends up as if the dead copy had never come.
* When all copies that a request was decided by are durable, it is final. What was kept for it is then a repetition,
  and is done. A part that is too late for a final request and may itself die is not crossed off in the join before it
  is durable: the join would forget the request while the live part is still to come.
* A request's sequence is the lowest offset of the parts that it is made from at last. As a dead part is let go at once,
  our committed offset may pass it; a sequence that were still the dead part's would be taken for an old one.

Deadness is learned in `take` and in `look` only, so nothing changes between two calls of a core. Memory: what is not
decided, and what waits for it; each of these holds its input offset. Work: O(parts of the request) per decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spillway.agents.core.request import Taken
from spillway.checkpoint.dedup import said_by
from spillway.checkpoint.durability import Awaited, Resting
from spillway.lineage.marks import merged

if TYPE_CHECKING:
    from spillway.agents.core.joins import Entry, JoinTable
    from spillway.agents.core.request import Delivery
    from spillway.checkpoint.dedup import PartitionMemory, Said
    from spillway.checkpoint.durability import Durability
    from spillway.checkpoint.offsets import PartitionOffsets
    from spillway.lineage.marks import Mark

    Key = tuple[str, Said]


class Copy(Resting):
    """One record, and what it rests on."""

    __slots__ = ("admitted", "case", "delivery", "key")

    def __init__(self, delivery: Delivery, key: Key | None, *, admitted: bool = True) -> None:
        super().__init__()
        self.delivery = delivery
        self.key = key
        self.admitted = admitted  # whether deduplication took it; if not, it is kept for when the first copy dies
        self.case: Case | None = None  # whose it is; None once its offset is let go

    @property
    def marks(self) -> tuple[Mark, ...]:
        hop = self.delivery.hop
        return () if hop is None else hop.marks

    def let_go(self) -> None:
        """Note that its fate concerns nobody any more.

        Nothing may lead back to it then: cycles are looked for so rarely that messages would fill the memory.
        """
        self.case = None
        self.delivery.copy = None


@dataclass(slots=True, eq=False)
class Case:
    """A request as far as it rests on what is not durable."""

    entry: Entry | None = None  # where its parts met
    heard: list[Copy] = field(default_factory=list)  # what it is decided by
    later: list[Copy] = field(default_factory=list)  # what is kept for when one of those dies
    owner: Any = None  # the work, or the gate's release, that was made of it and is not final
    closed: bool = False  # whether it waits for no more parts
    dead: bool = False  # given up

    @property
    def open(self) -> bool:
        return any(copy.open for copy in self.heard)


@dataclass(slots=True, eq=False)
class Changes:
    """What a look at the durability brought."""

    settled: list[Any] = field(default_factory=list)  # the owners of requests that are final now
    cancelled: list[Any] = field(default_factory=list)  # the owners of requests that were given up
    again: list[Copy] = field(default_factory=list)  # what comes again, in the order of offsets
    dead: int = 0  # records


class Speculation:
    """The records of one partition that are not decided."""

    def __init__(
        self, durability: Durability, memory: PartitionMemory, offsets: PartitionOffsets, joins: JoinTable | None
    ) -> None:
        self._awaited = Awaited(durability)
        self._memory = memory
        self._offsets = offsets
        self._joins = joins
        self._open: dict[Key, Copy] = {}  # the copies that were taken and are open

    # Records come ----------------------------------------------------------------------------------------------

    def take(self, delivery: Delivery) -> Taken:
        """Say what a record is; a FIRST one is given to `heard`, `single` or `parked` next."""
        hop = delivery.hop
        if hop is None or not delivery.request_id:
            delivery.copy = Copy(delivery, None)
            fresh = not delivery.request_id or self._memory.fresh(
                delivery.request_id, delivery.offset, "", None, delivery.appended
            )
            return Taken.FIRST if fresh else Taken.REPEATED
        lane = self._memory.opened(delivery.predecessor)
        if self._awaited.dead(hop.marks):
            lane.rise(delivery.offset, hop)
            return Taken.DEAD
        said = said_by(delivery.request_id, delivery.predecessor, delivery.lost)
        key = (delivery.predecessor, said)
        first = self._open.get(key)
        if first is not None:
            lane.later(said, delivery.offset, hop)
            if self._alike(first, key, hop.marks):
                return Taken.REPEATED
            copy = delivery.copy = Copy(delivery, key, admitted=False)
            self._awaited.add(copy, hop.marks)
            self._keep(first, copy)
            return Taken.KEPT
        if not lane.fresh(said, delivery.offset, hop):
            return Taken.REPEATED
        copy = delivery.copy = Copy(delivery, key)
        self._awaited.add(copy, hop.marks)
        if copy.open:
            self._open[key] = copy
        return Taken.FIRST

    def forgets(self, delivery: Delivery) -> bool:
        """Whether a record from below the committed offset is dead, and not to be remembered."""
        hop = delivery.hop
        if hop is None or not self._awaited.dead(hop.marks):
            return False
        self._memory.opened(delivery.predecessor).rise(delivery.offset, hop)
        return True

    def readmit(self, copy: Copy) -> Taken:
        key, hop = copy.key, copy.delivery.hop
        assert key is not None  # only messages between stages are kept by deduplication
        assert hop is not None
        first = self._open.get(key)
        if first is not None:
            self._keep(first, copy)
            return Taken.KEPT
        if not self._memory.opened(key[0]).supersede(key[1], hop):
            self.dismiss(copy)
            return Taken.REPEATED
        copy.admitted = True
        if copy.open:
            self._open[key] = copy
        return Taken.FIRST

    # Requests are made of them ---------------------------------------------------------------------------------

    def single(self, owner: Any, delivery: Delivery) -> tuple[Mark, ...]:
        """Note what was made of one record alone; gives the marks of all that is sent for it."""
        copy: Copy = delivery.copy
        if copy.open:
            case = Case()
            case.closed = True
            case.owner = owner
            self._hear(case, copy)
            owner.case = case
        else:
            copy.let_go()
        return copy.marks

    def heard(self, entry: Entry, delivery: Delivery) -> None:
        case: Case | None = entry.case
        if case is None:
            case = entry.case = Case(entry)
        self._hear(case, delivery.copy)

    def closed(self, owner: Any, entry: Entry) -> tuple[Mark, ...]:
        """Note what was made of a request that its join has closed; gives the marks of all that is sent for it."""
        case: Case = entry.case
        marks = merged(copy.marks for copy in case.heard)
        case.closed = True
        if case.open:
            case.owner = owner
            owner.case = case
        else:
            entry.case = None
            self._let_go(case)
        return marks

    def superfluous(self, entry: Entry, delivery: Delivery) -> bool:
        """Say whether a part that a join has no use for is kept; if not, it is done."""
        copy: Copy = delivery.copy
        case: Case | None = entry.case
        if case is None or not case.open:
            assert self._joins is not None  # it gave the entry
            if not copy.open or self._joins.waits(entry):
                return False
            if case is None:
                case = entry.case = Case(entry)
                case.closed = True
        self.park(case, delivery)
        return True

    def park(self, case: Case, delivery: Delivery) -> None:
        """Keep a record for when the request that it came too late for is decided."""
        copy: Copy = delivery.copy
        case.later.append(copy)
        copy.case = case

    def dismiss(self, copy: Copy) -> None:
        """Note that a record is done as it came too late: its fate concerns nobody any more."""
        copy.let_go()
        if copy.key is not None and self._open.get(copy.key) is copy:
            del self._open[copy.key]

    def holds(self, offset: int) -> bool:
        """Whether a record waits for versions to be durable: its own, or those of the request that it belongs to."""
        for thing in self._awaited.things():
            assert isinstance(thing, Copy)  # nothing else is added
            if thing.dead:
                continue
            case = thing.case
            kin = (thing,) if case is None else (thing, *case.heard, *case.later)
            if any(copy.delivery.offset == offset for copy in kin):
                return True
        return False

    # The logs have learned something ---------------------------------------------------------------------------

    def look(self) -> Changes | None:
        """See what is decided by now; None if nothing is. Offsets of what is dead are done."""
        durable, dead = self._awaited.decided()
        if not (durable or dead):
            return None
        changes = Changes()
        touched: dict[int, Case] = {}
        for thing in (*durable, *dead):
            assert isinstance(thing, Copy)  # nothing else is added
            key, case = thing.key, thing.case
            if key is not None and self._open.get(key) is thing:
                del self._open[key]
            if thing.dead and key is not None and thing.admitted and thing.delivery.hop is not None:
                self._memory.opened(key[0]).forget(key[1], thing.delivery.hop)
            if case is not None:
                touched[id(case)] = case
        for case in touched.values():
            self._review(case, changes)
        changes.again.sort(key=lambda copy: copy.delivery.offset)
        return changes

    def _review(self, case: Case, changes: Changes) -> None:
        given_up = any(copy.dead for copy in case.heard)
        if given_up and case.owner is not None and getattr(case.owner, "final", False):
            return  # it is part of a version that is dead as well: whoever made that goes back (rule 14)
        if given_up:
            self._give_up(case, changes)
        else:
            kept, case.later = case.later, []
            for copy in kept:
                if not copy.dead and self._waits(case, copy):
                    case.later.append(copy)
                else:
                    self._return(copy, changes)
            if case.owner is not None and not case.open:
                changes.settled.append(case.owner)
                case.owner = None
                self._let_go(case)
                if case.entry is not None and case.entry.case is case and not case.later:
                    case.entry.case = None

    def _give_up(self, case: Case, changes: Changes) -> None:
        case.dead = True
        if case.owner is not None:
            changes.cancelled.append(case.owner)
            case.owner = None
        if case.entry is not None:
            assert self._joins is not None  # it gave the entry
            self._joins.reopen(case.entry)
        for copy in (*case.heard, *case.later):
            self._return(copy, changes)
        case.heard, case.later, case.entry = [], [], None

    def _return(self, copy: Copy, changes: Changes) -> None:
        copy.case = None
        if copy.dead:
            changes.dead += 1
            self._offsets.done(copy.delivery.offset)
            copy.let_go()
        else:
            changes.again.append(copy)

    def _waits(self, case: Case, copy: Copy) -> bool:
        if copy.admitted:
            return case.open or bool(copy.open)
        return copy.key in self._open

    @staticmethod
    def _let_go(case: Case) -> None:
        for copy in case.heard:
            copy.let_go()
        case.heard = []

    @staticmethod
    def _hear(case: Case, copy: Copy) -> None:
        case.heard.append(copy)
        copy.case = case

    @staticmethod
    def _keep(first: Copy, copy: Copy) -> None:
        case = first.case
        assert case is not None  # whoever took the first copy has made one
        case.later.append(copy)
        copy.case = case

    @staticmethod
    def _alike(first: Copy, key: Key, marks: tuple[Mark, ...]) -> bool:
        if first.marks == marks:
            return True
        assert first.case is not None  # as above
        return any(copy.key == key and copy.marks == marks for copy in first.case.later)
