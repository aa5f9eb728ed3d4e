"""The gate's core: from the stages' reports to exactly one outcome per query.

It is the join of the pipeline's terminals, with the parts that a stage has (`Share`), and two things of its own: it
remembers the queries that it has decided (`ReleasedMemory`), and holds an outcome until what it rests on is durable.

Invariants:

* A query is decided once. Every later report of it, by whichever way, is done without an effect.
* A decided outcome is given to the driver by exactly one `collect`; the transaction of that turn holds its egress
  record together with the input offsets of `commits`, so both stand or neither does. After an abort the driver drops
  this core and builds a new one from what was committed: nothing here is ever rolled back.
* An outcome whose versions are not durable is held, and its input offsets with it, but never those of others. What is
  held is looked at again only when a version of its own is decided (`durability_changed`): what has once been found
  durable stays so, and nobody asks again when it leaves.
* A held outcome may turn out dead: then the query is undecided, what it was made from is heard again but for what is
  dead, and the live report is awaited. So reports of a held query that come by other ways are kept, not discarded
  (`spillway.agents.core.speculation`). An outcome that was released cannot: it is released when it is durable, which is
  final.

Order of calls for a partition that comes: read the committed offset and note (after a predecessor's transactions are
settled); with stateful stages, after that, the version logs to the ends that they have by then, at each assignment
anew; `assign`, `recall` every committed egress record from the returned position on, `remember` the input records of
the returned spans, `deliver` from the committed offset on.
Order of a turn: `collect`, `commits`, then the transaction that writes both, then `written` for each egress record and
`committed` for each partition. `durability_changed` when the version logs have learned something.
`now` is in unix seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.agents.core.join_rules import PAYLOAD_BYTES, Rule, Verdict
from spillway.agents.core.joins import REUSE_SECONDS, JoinTable, PayloadRoom
from spillway.agents.core.outcomes import GateStats, Release, ReleasedMemory, merged
from spillway.agents.core.request import Taken
from spillway.agents.core.share import Partitions, Share
from spillway.checkpoint.durability import Stateless
from spillway.checkpoint.notes import decode
from spillway.lineage import reasons
from spillway.lineage.message import FAILED, PREDICTION, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from spillway.agents.core.joins import Entry
    from spillway.agents.core.request import Delivery, Loss, Path
    from spillway.agents.core.speculation import Copy
    from spillway.checkpoint.dedup import Span
    from spillway.checkpoint.durability import Durability
    from spillway.lineage.ports import Commit
    from spillway.topology.routing import Graph


HELD_LIMIT = 20_000
HELD_BYTES = 32 << 20  # of the reports that those were made from


# One egress partition as the gate knows it: a share of the reports, what was decided of it, and what is held.
#
# Invariant: what is held is decided, and never released before all that it was decided by is durable. A query that is
# held is found by its id, as reports of it that come by other ways are kept until it is known whether it stands.


class GateShare(Share):
    """What the gate knows of one partition."""

    def __init__(
        self, partition: int, committed: int, joins: JoinTable | None, released: ReleasedMemory, *, settled: bool
    ) -> None:
        super().__init__(partition, committed, joins)
        self.released = released
        self.settled = settled
        self.held = 0  # outcomes that are decided and rest on what is not durable
        self.held_bytes = 0  # of the reports that they were made from
        self._queries: dict[str, Release] = {}  # the same, the newest of an id

    def take(self, delivery: Delivery) -> Taken:
        taken = super().take(delivery)
        if taken is not Taken.STRAY:
            self.released.taken(delivery.offset, delivery.appended)
        return taken

    def confirm(self, offset: int) -> bool:
        """Note that the broker has the commit of `offset`; False if that is no news."""
        self.settled = True
        news = super().confirm(offset)
        if news:
            self.released.committed(offset)
        return news

    def hold(self, release: Release) -> None:
        self.held += 1
        self.held_bytes += release.size
        self._queries[release.request_id] = release

    def let_go(self, release: Release) -> None:
        self.held -= 1
        self.held_bytes -= release.size
        if self._queries.get(release.request_id) is release:
            del self._queries[release.request_id]

    def parks(self, delivery: Delivery) -> bool:
        """Keep another report of a decided query in case that does not stand; False if it stands."""
        release = self._queries.get(delivery.request_id)
        if self.speculation is None or release is None or abs(release.source.sent - delivery.sent) > REUSE_SECONDS:
            return False
        self.speculation.park(release.case, delivery)
        return True


GATE = "gate"

_TEXTS = {Verdict.TIMEOUT: (reasons.JOIN_TIMEOUT, "not all sinks reported in time")}


class GateCore(Partitions[GateShare]):
    """One gate."""

    share_type = GateShare
    released_type = ReleasedMemory
    joins_type = JoinTable

    def __init__(
        self,
        graph: Graph,
        *,
        sinks: Literal["any", "all"] | None,
        durability: Durability | None = None,
        payload_bytes: int = PAYLOAD_BYTES,
        held_limit: int = HELD_LIMIT,
    ) -> None:
        """`sinks`: which of several terminals make the outcome; None where a query always has one.

        `durability`: None where no stage has a state. `held_limit`: decided outcomes beyond which there is no room.
        """
        super().__init__(GateStats())
        self._held_limit = held_limit
        self._decided: list[Release] = []  # not collected: new, or held for no version
        self._graph = graph
        self._rule = None if sinks is None else Rule(sinks)
        self._merges = sinks == "all"
        self._stateful = durability is not None
        self._durability: Durability = durability if durability is not None else Stateless()
        self._payloads = PayloadRoom(payload_bytes)

    @property
    def pending(self) -> int:
        return len(self._decided) + self.held

    @property
    def decided(self) -> bool:
        """Whether there is something to `collect`, as far as is known before it is asked for."""
        return bool(self._decided)

    @property
    def held(self) -> int:
        return sum(share.held for share in self._shares.values())

    @property
    def room(self) -> bool:
        """Whether more reports should be delivered. Waiting for a sink takes no room: only reading ends it."""
        shares = self._shares.values()
        if self.pending + sum(len(share.refetch) for share in shares) >= self._held_limit:
            return False
        held = sum(share.held_bytes + share.refetch.held for share in shares)
        return held + sum(release.size for release in self._decided) < HELD_BYTES

    # Partitions come and go ------------------------------------------------------------------------------------

    def assign(self, partition: int, committed: int, note: str = "") -> tuple[tuple[Span, ...], int]:
        """Start on a partition at its committed offset (or where reading starts, if nothing was committed).

        Returns the spans of input below it to `remember` and the egress position to `recall` from. Raises
        CheckpointError for a note that was not written by `commits`.
        """
        place = decode(note, committed)
        egress = place.egress or 0
        joins = None
        if self._rule is not None:
            joins = self.joins_type(self._rule, self._expected, self._payloads)
        released = self.released_type(egress)
        share = self.share_type(partition, committed, joins, released, settled=bool(note))
        if self._stateful:
            share.speculate(self._durability)
        self._shares[partition] = share
        return place.spans, egress

    def recall(self, partition: int, offset: int, request_id: str, sent: float, appended: float) -> None:
        self._shares[partition].released.recall(offset, request_id, sent, appended)

    def revoke(self, partition: int) -> None:
        share = self._shares.pop(partition, None)
        if share is not None:
            if share.joins is not None:
                share.joins.end()
            self._decided = [release for release in self._decided if release.partition != partition]

    # Reports come ----------------------------------------------------------------------------------------------

    def deliver(self, now: float, delivery: Delivery) -> None:
        """Take one report, whose payload has its `outcome`. One that cannot be decoded comes as a failed one."""
        share = self._take(delivery)
        if share is not None:
            self._hear(now, share, delivery)

    def skip(self, partition: int, offset: int) -> None:
        """Take a record that belongs to no query, as it cannot be read; its dead letter goes with the next turn."""
        share = self._shares.get(partition)
        if share is not None and share.offsets.taken(offset):
            share.offsets.done(offset)

    def advance(self, now: float) -> None:
        self._expire(now)

    def durability_changed(self, now: float) -> None:
        """Do what follows from what the version logs have learned: let what is held leave, or await the live one."""
        found = self._learned()
        for share, changes in found:
            for release in changes.settled:
                share.let_go(release)
                self._decided.append(release)
            for release in changes.cancelled:
                share.let_go(release)
                share.released.undecide(release.request_id, release.source.sent)
        for share, changes in found:
            for copy in changes.again:
                self._again(now, share, copy)

    def next_wake(self) -> float | None:
        return self._next_expiry()

    # Outcomes leave --------------------------------------------------------------------------------------------

    def collect(
        self, now: float, limit: int = 10_000, ready: Callable[[Release], bool] = lambda _release: True
    ) -> list[Release]:
        """Give the outcomes that may leave now. They count as written with this turn's transaction.

        `ready`: whether the driver can write one now; those behind it in its partition wait with it.
        """
        leaving: list[Release] = []
        held: list[Release] = []
        behind: set[int] = set()  # partitions
        for release in self._decided:
            if not ready(release):
                behind.add(release.partition)
            if len(leaving) < limit and release.partition not in behind:
                self.stats.score(now, release)
                leaving.append(release)
                done = self._shares[release.partition].offsets.done
                for offset in release.offsets:
                    done(offset)
            else:
                held.append(release)
        self._decided = held
        return leaving

    def commits(self) -> dict[int, Commit]:
        """Return the offset and note to commit in this turn's transaction, by partition.

        A partition that has never committed comes too, so that its note tells where its egress starts.
        """
        return {
            partition: share.commit(share.released.egress)
            for partition, share in self._shares.items()
            if share.offsets.position > share.committed or not share.settled
        }

    def written(self, partition: int, offset: int, request_id: str, sent: float, appended: float) -> None:
        """Note where and with which append time (unix seconds) the egress has an outcome of this turn."""
        share = self._shares.get(partition)
        if share is not None:
            share.released.written(offset, request_id, sent, appended)

    # Inside ----------------------------------------------------------------------------------------------------

    def _expected(self, path: Path) -> tuple[str, ...]:
        expected: tuple[str, ...] = self._graph.terminals(path)
        return expected

    def _hear(self, now: float, share: GateShare, delivery: Delivery) -> None:
        joins = share.joins
        if share.released.knows(delivery.request_id, delivery.sent) and not (
            joins is not None and joins.knows(delivery.request_id)
        ):
            if not share.parks(delivery):
                self._repeated(share, delivery)
        elif joins is not None:
            if not delivery.lost and delivery.payload.outcome.kind != PREDICTION:  # it could not be read
                known = delivery.hop is not None
                delivery.lost = (delivery.predecessor,) if known else self._expected(delivery.path)
            self._join(now, share, delivery)
        else:
            self._decide(share, delivery, (delivery,), (delivery.offset,), None)

    def _repeated(self, share: GateShare, delivery: Delivery) -> None:
        self.stats.duplicates += 1
        share.offsets.done(delivery.offset)
        if share.speculation is not None:
            share.speculation.dismiss(delivery.copy)

    def _again(self, now: float, share: GateShare, copy: Copy) -> None:
        assert share.speculation is not None  # it gave the copy
        taken = Taken.FIRST if copy.admitted else share.speculation.readmit(copy)
        if taken is Taken.FIRST:
            self._hear(now, share, copy.delivery)
        elif taken is Taken.REPEATED:  # and forgotten
            self.stats.duplicates += 1
            share.offsets.done(copy.delivery.offset)

    def _go_on(self, _now: float, share: GateShare, verdict: Verdict, entry: Entry, gone: Loss | None = None) -> None:
        results, losses = entry.hand_over()
        lost = [delivery for delivery, _ in losses]
        parts = (*results, *lost)
        offsets = tuple(entry.offsets)
        if gone is not None:
            own = Outcome(gone.kind, reason=gone.reason, text=gone.text, stage=GATE)
            source = next((part for part in parts if not part.dropped), parts[0])
            self._decide(share, source, parts, offsets, own, entry)
        elif verdict is Verdict.READY and not self._merges:
            self._decide(share, results[0], parts, offsets, None, entry)
        elif verdict is Verdict.READY:
            reports: list[tuple[str, Outcome]] = [(part.predecessor, part.payload.outcome) for part in results]
            self._decide(share, results[-1], parts, offsets, merged(reports), entry)
        elif verdict is Verdict.LOST:
            self._decide(share, lost[0], parts, offsets, None, entry)
        else:
            reason, text = _TEXTS[verdict]
            own = Outcome(FAILED, reason=reason, text=text, stage=GATE)
            self._decide(share, parts[0], parts, offsets, own, entry)

    def _decide(
        self,
        share: GateShare,
        source: Delivery,
        parts: tuple[Delivery, ...],
        offsets: tuple[int, ...],
        own: Outcome | None,
        entry: Entry | None = None,
    ) -> None:
        outcome: Outcome = own if own is not None else source.payload.outcome
        share.released.decide(source.request_id, source.sent, max(part.appended for part in parts))
        release = Release(source.request_id, share.partition, outcome, source, own is not None, parts, offsets)
        speculation = share.speculation
        if speculation is not None and entry is not None:
            speculation.closed(release, entry)
        elif speculation is not None:
            speculation.single(release, source)
        if release.case is None:
            self._decided.append(release)
        else:
            share.hold(release)
