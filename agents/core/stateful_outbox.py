"""What a stateful stage sends: everything carries the mark of the version that its request is recorded in.

Invariants:

* Whatever a request comes to, a result, a drop, a failure, a loss passed on or a dead letter, is sent with the mark of
  the version that is recorded next, in place of the marks that came: its manifest requires those, of the parts that
  were lost as of those that came. So nothing that was said of a request can differ from what a recovery reproduces.
* A record is done when its version is recorded (`take_recorded`); the version waits for the acknowledgements.
* A request is recorded once, in the version that it ends in. Its dead letter may be in another one: a part that cannot
  be read while others are awaited, or when the request has ended already. That version has the letter, but no record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agents.core.outbox import Outbox
from lineage.hops import Hop
from lineage.marks import Mark, merged
from lineage.replication import Record

if TYPE_CHECKING:
    from agents.core.actions import Emit, Loss, Ok, Work
    from agents.core.request import Delivery, Request
    from agents.core.share import Share
    from checkpoint.reign import Reign
    from topology.routing import Graph


class Told(NamedTuple):
    """What was sent since the version before."""

    taken: tuple[Record, ...]  # of the requests that were computed, in their order in the batch
    dropped: tuple[Record, ...]  # of all others
    requires: tuple[Mark, ...]
    sent: int  # messages


class StatefulOutbox(Outbox):
    """The messages of one reign."""

    __slots__ = ("_finished", "_letters", "_marks", "_requires", "_sent", "_taken", "reign")

    reign: Reign[object]

    def __init__(self, graph: Graph, stage: str, epoch: int) -> None:
        super().__init__(graph, stage, epoch)
        self._finished: dict[int, Work] = {}  # since the version before, by identity, in order
        self._letters: dict[int, Work] = {}  # of records whose requests go on
        self._taken: set[int] = set()
        self._requires: list[tuple[Mark, ...]] = []
        self._sent = 0
        self._marks: tuple[Mark, ...] = ()  # of the version that is recorded next, once something was sent for it

    def result(self, work: Work, result: Ok) -> None:
        self._taken.add(id(work))
        self._finish(work)
        super().result(work, result)
        self._sent += len(result.payloads)

    def bury(self, work: Work, source: Delivery, loss: Loss) -> None:
        """Put a record that could not be served where a person finds it."""
        if work.request_id:
            self._rest_on(work)
            self._letters[id(work)] = work
        else:
            self._finish(work)
        super().bury(work, source, loss)
        self._sent += 1

    def lose(self, work: Work, loss: Loss | None, source: Request | Delivery) -> None:
        self._finish(work)
        before = work.pending
        super().lose(work, loss, source)
        self._sent += work.pending - before

    def acked(self, emit: Emit) -> None:
        if emit.work is not None:
            self.reign.acked(emit.hop.marks[0].version.n)
        super().acked(emit)

    def settled(self, work: Work) -> None:
        """Nothing waits for it: its records were done when they were recorded."""

    @property
    def unrecorded(self) -> bool:
        return bool(self._finished or self._letters)

    def take_recorded(self) -> Told:
        taken: list[Record] = []
        dropped: list[Record] = []
        for key, work in self._finished.items():
            share: Share = work.share
            into = taken if key in self._taken else dropped
            for offset in work.offsets:
                into.append(Record(work.request_id, work.partition, offset))
                if share.live:
                    share.offsets.done(offset)
        for key, work in self._letters.items():
            if key not in self._finished and work.share.live:
                work.share.offsets.done(work.sequence)
        told = Told(tuple(taken), tuple(dropped), merged(self._requires), self._sent)
        self._finished = {}
        self._letters = {}
        self._taken = set()
        self._requires = []
        self._sent = 0
        self._marks = ()
        return told

    def _finish(self, work: Work) -> None:
        self._finished[id(work)] = work
        self._rest_on(work)

    def _rest_on(self, work: Work) -> None:
        """Require all that a request was decided by: the parts that it was made from, and every one that was lost."""
        work.final = True
        if work.marks:
            self._requires.append(work.marks)

    def _hop(self, work: Work) -> Hop:
        share: Share = work.share
        marks = self._marks
        if not marks:
            marks = self._marks = (self.reign.mark,)
        return Hop(self._stage, self._epoch, work.partition, work.sequence, share.committed, marks)
