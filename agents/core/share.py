"""One assigned partition as a core knows it: its offsets, what was already taken of it, the requests that meet in it.

Invariant: `commit` pairs an offset with a note such that every decision about records at or above the offset follows
from the records in the note's spans, which lie below it. All three parts keep to it: they forget by the committed
offset that the broker has confirmed, never by how far reading has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from spillway.agents.core.join_rules import Verdict
from spillway.agents.core.joins import NEVER, Refetch
from spillway.agents.core.request import Taken
from spillway.agents.core.speculation import Speculation
from spillway.checkpoint.dedup import PartitionMemory
from spillway.checkpoint.notes import Note, merge
from spillway.checkpoint.offsets import PartitionOffsets
from spillway.lineage.ports import Commit

if TYPE_CHECKING:
    from collections.abc import Container

    from spillway.agents.core.crash_suspects import Place
    from spillway.agents.core.joins import Entry, Fetch, JoinTable
    from spillway.agents.core.request import Delivery, Loss, Received
    from spillway.agents.core.speculation import Changes
    from spillway.checkpoint.dedup import Span
    from spillway.checkpoint.durability import Durability


class Share:
    """What is known of one partition; dropped as a whole when the partition is revoked."""

    offsets_type = PartitionOffsets
    memory_type = PartitionMemory
    speculation_type = Speculation

    def __init__(self, partition: int, committed: int, joins: JoinTable | None) -> None:
        self.refetch = Refetch(partition)
        self.partition = partition
        self.committed = committed  # as confirmed by the broker
        self.joins = joins
        self.offsets = self.offsets_type(committed)
        self.memory = self.memory_type()
        self.live = True  # until it is revoked
        self.speculation: Speculation | None = None  # only behind a stateful stage
        self.resting = 0  # requests that wait for nothing but durable states

    def speculate(self, durability: Durability) -> None:
        self.speculation = self.speculation_type(durability, self.memory, self.offsets, self.joins)

    def awaits(self, offset: int) -> bool:
        """Whether a record that is taken and not done waits for versions of other stages to be durable."""
        return self.speculation is not None and self.speculation.holds(offset)

    def take(self, delivery: Delivery) -> Taken:
        """Take one record. One without an id (it cannot be read) counts as a first copy."""
        offset = delivery.offset
        if not self.offsets.taken(offset):
            return Taken.STRAY
        if delivery.ids:
            self._take_ids(delivery)
        if self.speculation is not None:
            taken = self.speculation.take(delivery)
            if taken is Taken.REPEATED or taken is Taken.DEAD:
                self.offsets.done(offset)
            return taken
        if not delivery.request_id or self._fresh(delivery):
            return Taken.FIRST
        self.offsets.done(offset)
        return Taken.REPEATED

    def hear(self, now: float, delivery: Delivery, loss: Loss | None = None) -> tuple[Verdict, Entry | None]:
        """Give a first copy to the join; say which request it closed and how.

        A part that came too late is done. With WAITING, LATE and KEPT there is nothing to do.
        """
        joins, speculation = self.joins, self.speculation
        assert joins is not None  # the caller has looked
        if speculation is not None:
            entry = joins.superfluous(delivery)
            if entry is not None and speculation.superfluous(entry, delivery):
                return Verdict.KEPT, None
        verdict, entry = joins.hear(now, delivery, loss)
        if entry is None:
            self.offsets.done(delivery.offset)
            if speculation is not None:
                speculation.dismiss(delivery.copy)
            return verdict, entry
        if speculation is not None:
            speculation.heard(entry, delivery)
        return verdict, entry

    def expire(self, now: float) -> list[tuple[Verdict, Entry]]:
        return [] if self.joins is None else self.joins.expire(now)

    def next_expiry(self) -> float:
        return NEVER if self.joins is None else self.joins.next_expiry()

    def remember(self, delivery: Delivery) -> None:
        """Note a record below the committed offset.

        What is dead is not remembered. Of the rest, what was taken was durable when it was let go (rule 8); what may
        still die repeats that, and comes after it. Hence the logs are read to their ends before.
        """
        if delivery.ids:
            self._take_ids(delivery)
        if self.speculation is not None and self.speculation.forgets(delivery):
            return
        if self._fresh(delivery) and self.joins is not None:
            self.joins.remember(delivery)

    def commit(self, egress: int | None = None) -> Commit:
        position = self.offsets.position
        return Commit(position, Note(merge(self.spans(), position), egress).encode(position))

    def spans(self) -> list[Span]:
        """Where the records lie from which memory can be rebuilt; may reach beyond the position."""
        spans = self.memory.spans()
        if self.joins is not None:
            spans += self.joins.spans()
        return spans

    def confirm(self, offset: int) -> bool:
        if offset <= self.committed:
            return False
        self.committed = offset
        self.memory.committed(offset)
        if self.joins is not None:
            self.joins.committed(offset)
        return True

    @property
    def held_by_joins(self) -> int:
        """How many records lie at or above the position where it stands still as a request waits for a part there."""
        oldest = None if self.joins is None else self.joins.oldest
        return self.offsets.held if oldest is not None and oldest == self.offsets.lowest_unfinished else 0

    @property
    def waiting(self) -> int:
        return 0 if self.joins is None else self.joins.waiting

    def _take_ids(self, delivery: Delivery) -> None:
        delivery.repeated = self.memory.repeated(delivery.ids, delivery.offset, delivery.appended)

    def _fresh(self, delivery: Delivery) -> bool:
        return self.memory.fresh(
            delivery.request_id, delivery.offset, delivery.predecessor, delivery.hop, delivery.appended, delivery.lost
        )


S = TypeVar("S", bound=Share)


class Partitions(Generic[S]):
    """The partitions that a core is assigned: what a stage's and the gate's do alike with them."""

    def __init__(self, stats: Received) -> None:
        self.stats: Any = stats
        self._shares: dict[int, S] = {}
        self._lowest: dict[int, int | None] = {}  # unfinished offsets by partition, when `waits` was asked before
        self.reads_again = True  # whether requests may wait for payloads that are read again: at a join alone

    @property
    def room(self) -> bool:
        """Whether more records should be delivered."""
        raise NotImplementedError

    @property
    def waiting(self) -> int:
        return sum(share.waiting for share in self._shares.values())

    def waits(self, busy: Container[Place] = ()) -> frozenset[int]:
        """The partitions that have stood still by right since this was asked before; `busy`: what models run.

        What holds their commit back waits for versions, which another stage sees to, or is in a long batch. Where these
        partitions fill the core, so that nothing more is read, those of which nothing is under way stand still, too.
        """
        lowest = {partition: share.offsets.lowest_unfinished for partition, share in self._shares.items()}
        before, self._lowest = self._lowest, lowest
        waiting = {
            partition
            for partition, offset in lowest.items()
            if offset is not None
            and before.get(partition) == offset
            and ((partition, offset) in busy or self._shares[partition].awaits(offset))
        }
        if waiting and not self.room:
            waiting |= {partition for partition, offset in lowest.items() if offset is None}
        return frozenset(waiting)

    def fetched(self, now: float, fetch: Fetch, payload: Any, loss: Loss | None = None) -> None:
        """Take the payload of a record that was read again; with `loss`, a stand-in for one that is gone."""
        share = self._shares.get(fetch.partition)
        parked = None if share is None else share.refetch.fetched(fetch.offset, payload, loss)
        if share is not None and parked is not None:
            self._go_on(now, share, parked.verdict, parked.entry, parked.loss)

    def remember(self, delivery: Delivery) -> None:
        """Remember a record below the committed offset, whose request is done."""
        self._shares[delivery.partition].remember(delivery)

    def committed(self, partition: int, offset: int) -> None:
        share = self._shares.get(partition)
        if share is not None:
            share.confirm(offset)

    def take_fetches(self) -> list[Fetch]:
        """Return the records that are to be read again; every one is answered by `fetched`."""
        return [fetch for share in self._shares.values() for fetch in share.refetch.take()]

    def _take(self, delivery: Delivery) -> S | None:
        """Take a record if it is ours and the first copy; a repetition is done at once."""
        share = self._shares.get(delivery.partition)
        taken = Taken.STRAY if share is None else share.take(delivery)
        stats = self.stats
        if taken is Taken.STRAY:
            stats.stray += 1
            return None
        stats.received += 1
        if taken is Taken.FIRST:
            return share
        if taken is Taken.REPEATED:
            stats.duplicates += 1
        elif taken is Taken.DEAD:
            stats.dead += 1
        return None

    def _learned(self) -> list[tuple[S, Changes]]:
        """What follows from what the version logs have learned, by partition of which anything is decided."""
        found = [(share, share.speculation.look()) for share in self._shares.values() if share.speculation is not None]
        learned = [(share, changes) for share, changes in found if changes is not None]
        self.stats.dead += sum(changes.dead for _, changes in learned)
        return learned

    def _join(self, now: float, share: S, delivery: Delivery, loss: Loss | None = None) -> None:
        """Put a first copy into its join, and go on with the request that it closes."""
        verdict, entry = share.hear(now, delivery, loss)
        if verdict is Verdict.LATE:
            self.stats.duplicates += 1
        elif entry is not None and verdict is not Verdict.WAITING:
            self._closed(now, share, verdict, entry)

    def _expire(self, now: float) -> None:
        for share in self._shares.values():
            for verdict, entry in share.expire(now):
                self._closed(now, share, verdict, entry)

    def _closed(self, now: float, share: S, verdict: Verdict, entry: Entry) -> None:
        """Go on with a request that a join has closed, unless payloads of it have to be read again."""
        if not share.refetch.park(verdict, entry):
            self._go_on(now, share, verdict, entry)

    def _go_on(self, now: float, share: S, verdict: Verdict, entry: Entry, gone: Loss | None = None) -> None:
        """Make of a closed request what follows of it; `gone`: a part of it cannot be read again."""
        raise NotImplementedError

    def _next_expiry(self) -> float | None:
        expiry = min((share.next_expiry() for share in self._shares.values()), default=NEVER)
        return None if expiry == NEVER else expiry
