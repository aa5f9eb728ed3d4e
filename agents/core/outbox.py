"""What a stage sends, and when the records that led to it are done.

Invariants:

* A request is settled when each of its emits is acknowledged, and only then are its input records done. An emit is
  counted before any of its request's can be acknowledged, so a request is never settled half-way.
* Behind a stateful stage an emit carries the marks of all that its request was decided by, and the input records are
  done only when all of those are durable, too; all of them together, so that a crash brings all of them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.core.actions import DROPPED, FAILED, Emit, EmitKind, Failed, Loss, Ok, StageStats, Work
from agents.core.request import Delivery
from lineage.hops import Hop

if TYPE_CHECKING:
    from agents.core.request import Request
    from agents.core.share import Share
    from topology.routing import Graph


class Outbox:
    """The messages of one stage replica."""

    __slots__ = ("_emits", "_epoch", "_graph", "_stage", "resting", "stats", "unsettled")

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
            raise ValueError(f"the result for {work.request_id!r} goes nowhere")
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
        """Give the messages to produce, in order."""
        emits, self._emits = self._emits, []
        return emits

    def _hop(self, work: Work) -> Hop:
        share: Share = work.share
        return Hop(self._stage, self._epoch, work.partition, work.sequence, share.committed, work.marks)


def _count(counts: dict[str, int], reason: str) -> None:
    counts[reason] = counts.get(reason, 0) + 1
