"""What a stage sends, and when the records that led to it are done.

Invariants:

* A request is settled when each of its emits is acknowledged, and only then are its input records done. An emit is
  counted before any of its request's can be acknowledged, so a request is never settled half-way.
* Behind a stateful stage an emit carries the marks of all that its request was decided by, and the input records are
  done only when all of those are durable, too; all of them together, so that a crash brings all of them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from spillway.agents.core.actions import Emit, EmitKind, Failed, Ok, StageStats, Work
from spillway.agents.core.request import Delivery, Loss
from spillway.lineage.hops import Hop
from spillway.lineage.marks import Mark, merged
from spillway.lineage.message import DROPPED, FAILED
from spillway.lineage.replication import InputRecord

if TYPE_CHECKING:
    from spillway.agents.core.request import Request
    from spillway.agents.core.share import Share
    from spillway.checkpoint.reign import Reign
    from spillway.topology.routing import Graph


class Outbox:
    """The messages of one stage replica."""

    def __init__(self, graph: Graph, stage: str, epoch: int) -> None:
        self._graph = graph
        self._stage = stage
        self._epoch = epoch
        self._emits: list[Emit] = []
        self.stats = StageStats()
        self.unsettled = 0  # requests that were made and are not settled; whoever makes one counts it here
        self.resting = 0  # requests that are settled and rest on states that are not durable

    def result(self, work: Work, result: Ok) -> None:
        payloads = result.payloads
        if not payloads:
            raise ValueError(f"the result for {work.request_id!r} has no destination")
        path = work.path
        if result.chosen is not None:
            path = {**path, self._stage: result.chosen}
        hop = self._hop(work)
        work.pending += len(payloads)
        self.stats.emitted += len(payloads)
        emits = self._emits
        for destination, payload in payloads.items():
            kind = EmitKind.OUTCOME if destination is None else EmitKind.RESULT
            emits.append(Emit(kind, destination, hop, path, payload, work, work))

    def failure(self, work: Work, result: Failed) -> None:
        loss = Loss(FAILED, result.reason, result.text)
        for part in work.parts:
            self.bury(work, part, loss)
        self.lose(work, loss, work)

    def bury(self, work: Work, source: Delivery, loss: Loss) -> None:
        """Put a record that could not be served where a person finds it."""
        _count(self.stats.dead_letters, loss.reason)
        work.pending += 1
        self.stats.emitted += 1
        self._emits.append(Emit(EmitKind.DEAD_LETTER, None, self._hop(work), work.path, None, source, work, loss=loss))

    def lose(self, work: Work, loss: Loss | None, source: Request | Delivery) -> None:
        """Tell everybody who waits for this request that it ends here; None passes the loss in `source` on."""
        if loss is not None:
            _count(self.stats.dropped if loss.kind == DROPPED else self.stats.failed, loss.reason)
        payload = source.payload if loss is None and isinstance(source, Delivery) else None
        hop = self._hop(work)
        for destination, lost in self._graph.losses(self._stage, work.path):
            kind = EmitKind.OUTCOME if destination is None else EmitKind.TOMBSTONE
            work.pending += 1
            self.stats.emitted += 1
            self._emits.append(Emit(kind, destination, hop, work.path, payload, source, work, lost, loss))

    def acked(self, emit: Emit) -> None:
        """Note that the broker has a message. A second time is ignored."""
        work = emit.work
        if work is None:
            return
        emit.work = None
        work.pending -= 1
        if not work.pending:
            self.unsettled -= 1
            self.settled(work)

    def settled(self, work: Work) -> None:
        """Let the input records of a request go whose last emit is acknowledged, if all it rests on is durable."""
        share: Share = work.share
        if not share.live:
            return
        case = work.case
        if case is None or not (case.open or case.dead):
            done = share.offsets.done
            for offset in work.offsets:
                done(offset)
        elif not case.dead:
            work.acknowledged = True
            share.resting += 1
            self.resting += 1

    def durable(self, work: Work) -> None:
        if work.acknowledged:
            self._rested(work)
            self.settled(work)

    def recalled(self, work: Work) -> None:
        """Note that a request was given up for what it rests on; what it has sent is discarded by whoever gets it."""
        if work.acknowledged:
            self._rested(work)

    def _rested(self, work: Work) -> None:
        work.acknowledged = False
        work.share.resting -= 1
        self.resting -= 1

    def take(self) -> list[Emit]:
        emits, self._emits = self._emits, []
        return emits

    def _hop(self, work: Work) -> Hop:
        share: Share = work.share
        return Hop(self._stage, self._epoch, work.partition, work.sequence, share.committed, work.marks)


def _count(counts: dict[str, int], reason: str) -> None:
    counts[reason] = counts.get(reason, 0) + 1


# What a stateful stage sends: everything carries the mark of the version that its request is recorded in.
#
# Invariants:
#
# * Whatever a request comes to, a result, a drop, a failure, a loss passed on or a dead letter, is sent with the mark
#   of the version that is recorded next, in place of the marks that came: its manifest requires those, of the parts
#   that were lost as of those that came. So nothing that was said of a request can differ from what a recovery
#   reproduces.
# * A record is done when its version is recorded (`take_recorded`); the version waits for the acknowledgements.
# * A request is recorded once, in the version that it ends in. Its dead letter may be in another one: a part that
#   cannot be read while others are awaited, or when the request has ended already. That version has the letter, but no
#   record.


class Told(NamedTuple):
    """What was sent since the version before."""

    taken: tuple[InputRecord, ...]  # of the requests that were computed, in their order in the batch
    dropped: tuple[InputRecord, ...]  # of all others
    requires: tuple[Mark, ...]
    sent: int  # messages


class StatefulOutbox(Outbox):
    """The messages of one reign."""

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
        taken: list[InputRecord] = []
        dropped: list[InputRecord] = []
        for key, work in self._finished.items():
            share: Share = work.share
            into = taken if key in self._taken else dropped
            for offset in work.offsets:
                into.append(InputRecord(work.request_id, work.partition, offset))
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
