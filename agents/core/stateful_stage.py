"""A stateful stage's core during one reign of its shard: a stage whose executions are computed, then change a state.

    take_runs -> computed -> take_updates -> updated -> (next batch), and beside it Copy, Write, Seal, .. (`reign`)

Invariants, beside those of a stage:

* Everything that ends here is recorded in a version, and its messages carry that version's mark (`StatefulOutbox`).
  The results of a batch leave when it has been computed; where the mode holds them, with a complete version.
* Drops between batches belong to the next batch's version; where none is running, they are a version of their own.
* A position is told (in hops, in commits) when the version that covers it is durable.
* Records that lead to nothing (repetitions, and what is dead) are covered by the next version; where there would be
  none, by an empty one (`cover`).
* A batch may be divided (`apart`): its parts are computed one after another, each in a version of its own.
* The core lives for one reign. It is made from the base's manifest at a promotion, and dropped when the member stands
  down; nothing in it is ever rolled back. `contaminated` says that it has to be: it rests on something dead (rule 14).

The driver's calls, beside a stage's: `computed` in place of `complete`, `updated` after each of `take_updates`, the
reign's events through `copied` and `completed`; after any call, `take_orders`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from spillway.agents.core.actions import Ok, Work
from spillway.agents.core.outbox import StatefulOutbox
from spillway.agents.core.request import Taken
from spillway.agents.core.share import Share
from spillway.agents.core.stage import StageCore
from spillway.checkpoint.notes import Note, merge
from spillway.checkpoint.offsets import contains, union
from spillway.checkpoint.reign import Emit as EmitHeld
from spillway.lineage.marks import Mark
from spillway.lineage.ports import Commit
from spillway.lineage.replication import Batch as Recorded
from spillway.lineage.replication import InputPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spillway.agents.core.actions import Emit, Result
    from spillway.agents.core.batching import Batch, Batcher
    from spillway.agents.core.join_rules import Rule
    from spillway.agents.core.policy import StageState
    from spillway.agents.core.request import Delivery
    from spillway.checkpoint.dedup import Span
    from spillway.checkpoint.logs import Logs
    from spillway.checkpoint.offsets import Run
    from spillway.checkpoint.reign import Order, Reign
    from spillway.lineage.marks import Version
    from spillway.topology.routing import Graph


# One partition as a stateful stage's core knows it: what goes with a version is what a stateless stage commits.
#
# A manifest has, of every partition of its shard, the offset up to which all records are covered by it or by a version
# before, the note that memory is rebuilt from, and the offsets above that are covered as well (rule 10).
# Invariants:
#
# * A record is done when its request is recorded in a version; whether the broker has what was sent for it is the
# version's to wait for, not the offset's.
# * `committed` is the offset of the newest durable version, which is what hops tell: nothing below is ever repeated,
# whatever dies (rules 8 and 9).
# * A covered record that is read again is remembered and leads to nothing.
# * The position is the first offset that is not covered. Where reading has stopped, for want of room, before records
# that the base covers, it lies beyond them, and the note asks for them: this reign's memory does not have them yet.


class StatefulShare(Share):
    """A partition during one reign."""

    def cover(self, runs: tuple[Run, ...]) -> None:
        """Note what the base covers above its position. Call it before the first record is taken."""
        self.covered = runs
        self._snapshot: InputPlace | None = None
        self._snapshot_of = (-1, -1, -1)

    def take(self, delivery: Delivery) -> Taken:
        """Take one record, unless the base covers it."""
        offset = delivery.offset
        if not contains(self.covered, offset):
            return super().take(delivery)
        if not self.offsets.taken(offset):
            return Taken.STRAY
        if delivery.request_id:
            self.remember(delivery)
        self.offsets.done(offset)
        return Taken.REPEATED

    def place(self) -> InputPlace:
        offsets = self.offsets
        of = (offsets.position, offsets.held - offsets.unfinished, self.committed)
        if self._snapshot is None or of != self._snapshot_of:
            self._snapshot, self._snapshot_of = self._place(), of
        return self._snapshot

    def _place(self) -> InputPlace:
        offsets = self.offsets
        covered = union((*offsets.covered, *self.covered), offsets.position)
        position = offsets.position
        if covered and covered[0][0] == position:
            position, covered = covered[0][1], covered[1:]
        unread = [(offsets.position, position)] if position > offsets.position else []
        note = Note(merge([*self.spans(), *unread], position)).encode(position)
        return InputPlace(self.partition, position, note, covered)


_COVER_SECONDS = 1.0  # between looks for records that are done and that no version will cover


class StatefulCore(StageCore):
    """One primary of one shard. `reign.take` is called by `take_orders`, its events by the methods here."""

    share_type = StatefulShare
    outbox_type = StatefulOutbox

    def __init__(
        self,
        graph: Graph,
        stage: str,
        batcher: Batcher,
        *,
        reign: Reign[Any],
        logs: Logs,
        rule: Rule | None = None,
        **options: Any,
    ) -> None:
        """`logs`: of all stateful stages. `options`: as a stage's, `queue_limit` and `steps`.

        Raises ValueError for a batcher with several instances: a state has one.
        """
        super().__init__(graph, stage, batcher, rule=rule, epoch=reign.epoch, durability=logs, **options)
        self.reign = reign
        self._logs = logs
        outbox: Any = self._outbox
        self._out: StatefulOutbox = outbox
        self._out.reign = reign
        shares: Any = self._shares
        self._inputs: dict[int, StatefulShare] = shares
        self._running: Batch | None = None  # given out by `take_runs`, until it is updated
        self._due: Batch | None = None  # computed; its update waits for a copy
        self._updating = False
        self._ended: tuple[Batch, float] | None = None  # updated; the instance is free when the mode says so
        self._later: deque[Batch] = deque()  # parts of the instance's batch that are computed after this one
        self._before = 0.0  # seconds that the parts before took
        self._updates: list[Batch] = []
        self._withheld: list[Emit] = []
        self._freed: list[Emit] = []
        self._durable: dict[int, InputPlace] = {}
        self._recorded: dict[int, int] = {}  # the positions that the newest version has, by partition
        self._of_base: dict[int, InputPlace] = {}  # what the base covers, until it is durable
        self._covered_at = -float("inf")  # when it was looked last for what no version covers
        self._told: dict[int, int] = {}  # the offsets that the broker has as committed
        self.contaminated: Mark | None = None  # something dead that the reign rests on
        self.apart: Callable[[Batch], list[Batch]] = lambda batch: [batch]  # divides it

    # Partitions ------------------------------------------------------------------------------------------------

    def assign_place(self, place: InputPlace) -> tuple[Span, ...]:
        """Start on a partition as the base's manifest has it; gives the spans to `remember`, as `assign` does.

        What the base covers is told only when the base is durable: were it to die, all above an older position would be
        repeated, and whoever had been told of this one would take the repetitions for old ones.
        """
        spans = self.assign(place.partition, place.position, place.note)
        share = self._inputs[place.partition]
        share.cover(place.covered)
        self._recorded[place.partition] = place.position
        if self._base_is_durable():
            self._durable[place.partition] = place
        else:
            self._of_base[place.partition] = place
            share.committed = 0
        return spans

    def commits(self) -> dict[int, Commit]:
        """Return what the newest durable version covers and was not told yet."""
        return {
            partition: Commit(place.position, place.note)
            for partition, place in self._durable.items()
            if place.position > self._told.get(partition, -1)
        }

    def committed(self, partition: int, offset: int) -> None:
        """Note that the broker has the commit; it only tells others, the manifest is what counts."""
        self._told[partition] = max(offset, self._told.get(partition, -1))

    # A batch ---------------------------------------------------------------------------------------------------

    def complete(self, now: float, batch: Batch, results: Sequence[Result], executed: float) -> None:
        raise NotImplementedError

    def computed(self, now: float, batch: Batch, results: Sequence[Result], executed: float, *, changes: bool) -> None:
        """Take the results of a batch, in the order of its requests; it ran for `executed` s.

        `changes`: whether there is an update to run. If not, the batch is at its end.
        """
        if len(results) != len(batch.requests):
            raise ValueError(f"{len(batch.requests)} requests, {len(results)} results")
        for request, result in zip(batch.requests, results, strict=True):
            assert isinstance(request, Work)  # the core pushed it
            for step in self._steps:
                step.settled(request, result)
            if isinstance(result, Ok):
                self._out.result(request, result)
            else:
                self._out.failure(request, result)
        self._record()
        if changes:
            self._due = batch
            self._ended = (batch, executed)
            self._begin_update()
        else:
            self.reign.updated()
            self._ended = (batch, executed)
            self._free(now)
        self._drain(now)

    def updated(self, now: float, executed: float) -> None:
        """Note that the update ordered by `take_updates` is through; it ran for `executed` s."""
        assert self._ended is not None  # it was ordered
        batch, before = self._ended
        self._ended = (batch, before + executed)
        self._updating = False
        self.reign.updated()
        self._free(now)
        self._drain(now)

    def take_runs(self) -> list[Batch]:
        runs = []
        for batch in super().take_runs():
            for request in batch.requests:
                assert isinstance(request, Work)  # the core pushed it
                request.final = True  # if it turns out dead, so does the reign
            self._running, *later = self.apart(batch)
            self._later += later
            runs.append(self._running)
        return runs

    def take_updates(self) -> list[Batch]:
        """Give the batch whose update is to run now; it is answered by `updated`."""
        updates, self._updates = self._updates, []
        return updates

    def take_emits(self) -> list[Emit]:
        """Give the messages to produce, in order; where the mode holds them, those of complete versions."""
        emits = super().take_emits()
        if not self.reign.mode.holds:
            return emits
        self._withheld += emits
        freed, self._freed = self._freed, []
        return freed

    def withheld(self, version: Version) -> list[Emit]:
        """Give what is held of the versions up to this one: its manifest contains it."""
        self._withheld += super().take_emits()
        return [emit for emit in self._withheld if _n(emit) <= version.n]

    # The reign -------------------------------------------------------------------------------------------------

    def take_orders(self) -> list[Order[Any]]:
        """Give what is to be copied, written, sealed and released now, in this order."""
        orders: list[Order[Any]] = []
        while taken := self.reign.take():  # letting messages go may bring more
            for order in taken:
                if isinstance(order, EmitHeld):
                    self._let_go(order.n)
                else:
                    orders.append(order)
        return orders

    def copied(self, now: float, version: Version, what: Any) -> None:
        """Take the copy that was ordered; an update that waited for it, or the next batch, goes on."""
        self.reign.copied(version, what)
        self._begin_update()
        self._free(now)
        self._drain(now)

    def completed(self, now: float, version: Version) -> None:
        self.reign.completed(version)
        self._free(now)
        self._drain(now)

    def cover(self) -> None:
        """Record what was done without a version, repetitions and dead records, if nothing else will.

        Where all that is read is dead or repeated no batch would ever cover it. A driver that reads no further before
        the input it holds is covered would wait for ever, and who watches the commits would take it for one that hangs.
        """
        if self._running is None and not (self._runs or self._batcher.depth):
            inputs = tuple(share.place() for _, share in sorted(self._inputs.items()))
            if any(place.position > self._recorded.get(place.partition, place.position) for place in inputs):
                self._record()
                self.reign.updated()

    def durability_changed(self, now: float) -> None:
        super().durability_changed(now)
        if self._of_base and self._base_is_durable():
            self._cover(self._of_base.values())
            self._of_base = {}
        inputs = self.reign.durable(self._logs.newest_durable(self.reign.place))
        if inputs is not None:
            self._cover(inputs)
        self._look_for_dead(self.reign.requires())
        self._drain(now)

    def tick(self, now: float, states: Mapping[str, Sequence[StageState]]) -> None:
        """Give the policy the newest states of all stages, once a period; record what else is covered by now."""
        super().tick(now, states)
        if now - self._covered_at >= _COVER_SECONDS and self._idle:
            self._covered_at = now
            self.cover()

    @property
    def held_by_joins(self) -> int:
        """Records that are not let go for no other reason than that requests wait for parts, which may be unread."""
        return sum(share.held_by_joins for share in self._inputs.values())

    @property
    def durable_places(self) -> dict[int, InputPlace]:
        """What the newest durable version covers, by partition; at first what the base does, where that is durable."""
        return dict(self._durable)

    @property
    def durable_n(self) -> int:
        """The newest durable version; one less than the base while that is not durable itself."""
        n = self.reign.durable_n
        return n - 1 if n == self.reign.base.n and not self._base_is_durable() else n

    @property
    def settled(self) -> bool:
        return self._running is None and not self._out.unrecorded and self.reign.idle and not self._withheld

    # Inside ----------------------------------------------------------------------------------------------------

    @property
    def _idle(self) -> bool:
        return self.settled and not (self.depth or self._runs) and self.contaminated is None

    def fail(self, now: float, delivery: Delivery, reason: str, text: str = "") -> None:
        super().fail(now, delivery, reason, text)
        self._drain(now)

    def _drain(self, now: float) -> None:
        super()._drain(now)
        if self._out.unrecorded and self._running is None and not self._runs:
            self._record()
            self.reign.updated()

    def _record(self) -> None:
        told = self._out.take_recorded()
        inputs = tuple(share.place() for _, share in sorted(self._inputs.items()))
        self._recorded = {place.partition: place.position for place in inputs}
        n = self.reign.next.n
        self.reign.record(Recorded(n, told.taken, told.dropped), told.requires, inputs, told.sent)
        self._look_for_dead(told.requires)

    def _base_is_durable(self) -> bool:
        return self._logs.durable(Mark(*self.reign.place, self.reign.base))

    def _cover(self, places: Iterable[InputPlace]) -> None:
        for place in places:
            self._durable[place.partition] = place
            self._shares[place.partition].confirm(place.position)

    def _look_for_dead(self, marks: Iterable[Mark]) -> None:
        if self.contaminated is None:
            self.contaminated = next((mark for mark in marks if self._logs.dead(mark)), None)

    def _begin_update(self) -> None:
        if self._due is not None and self.reign.may_update:
            self._updates.append(self._due)
            self._due = None
            self._updating = True
            self.reign.update_begins()

    def _free(self, now: float) -> None:
        """Let the next batch be computed, if this one is through and the mode waits for nothing else."""
        if self._ended is None or self._updating or self._due is not None:
            return
        if self.reign.may_compute:
            (batch, executed), self._ended = self._ended, None
            self._running = None
            self._before += executed
            if self._later:
                self._runs.append(self._later.popleft())
                return
            executed, self._before = self._before, 0.0
            self._batcher.complete(now, batch.worker, executed)

    def _let_go(self, n: int) -> None:
        self._withheld += super().take_emits()
        going = [emit for emit in self._withheld if _n(emit) <= n]
        self._withheld = [emit for emit in self._withheld if _n(emit) > n]
        if self.reign.mode.transacts:  # the transaction had them
            self.acked_all(going)
        else:
            self._freed += going


def _n(emit: Emit) -> int:
    return emit.hop.marks[0].version.n
