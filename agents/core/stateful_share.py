"""One partition as a stateful stage's core knows it: what goes with a version is what a stateless stage commits.

A manifest has, of every partition of its shard, the offset up to which all records are covered by it or by a version
before, the note that memory is rebuilt from, and the offsets above that are covered as well (rule 10).
Invariants:

* A record is done when its request is recorded in a version; whether the broker has what was sent for it is the
  version's to wait for, not the offset's.
* `committed` is the offset of the newest durable version, which is what hops tell: nothing below is ever repeated,
  whatever dies (rules 8 and 9).
* A covered record that is read again is remembered and leads to nothing.
* The position is the first offset that is not covered. Where reading has stopped, for want of room, before records that
  the base covers, it lies beyond them, and the note asks for them: this reign's memory does not have them yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.core.share import Share, Taken
from checkpoint.notes import Note, merge
from checkpoint.runs import contains, union
from lineage.replication import InputPlace

if TYPE_CHECKING:
    from agents.core.request import Delivery
    from checkpoint.runs import Run


class StatefulShare(Share):
    """A partition during one reign."""

    __slots__ = ("_snapshot", "_snapshot_of", "covered")

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
