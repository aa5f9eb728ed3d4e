"""How records come into a stage's core, and come again where what they rest on has changed.

    record -> taken -> first copy? -> (joined with its other parts) -> a request, or a loss that goes on

What is behind a stateful stage minds what records rest on (`spillway.agents.core.speculation`): `durability_changed`
lets the input offsets of requests go whose states are durable, and takes back what rests on dead ones. A request that
is taken back leaves the queue; if it runs, its result is not sent; if it was sent, whoever gets it discards it. Its
live parts wait in their join again, for the sender of the dead one, and a copy that was kept in case of this is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.agents.core.actions import Work
from spillway.agents.core.join_rules import PAYLOAD_BYTES, Verdict
from spillway.agents.core.request import Loss, Taken
from spillway.agents.core.share import Partitions, Share
from spillway.lineage import reasons
from spillway.lineage.message import FAILED

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.core.batching import Batcher
    from spillway.agents.core.joins import Entry, Fetch
    from spillway.agents.core.outbox import Outbox
    from spillway.agents.core.policy import Load, StageView
    from spillway.agents.core.request import Delivery, Path
    from spillway.agents.core.speculation import Copy
    from spillway.checkpoint.durability import Durability

_UNSETTLED_PER_QUEUED = 4  # requests that may be under way in all, per place in the queue
_ENDS = {Verdict.TIMEOUT: Loss(FAILED, reasons.JOIN_TIMEOUT, "not all parts came in time")}


class Intake(Partitions[Share]):
    """The way in of one replica of one stage, and its readings."""

    _enter: Callable[[float, Work], object]  # the way to the queue, or to an answer

    def __init__(
        self,
        batcher: Batcher,
        outbox: Outbox,
        queue_limit: int,
        expected: Callable[[Path], tuple[str, ...]],
        durability: Durability | None,
    ) -> None:
        """`queue_limit`: requests that may wait. `expected` gives whom a request with that path is heard from.

        `durability`: None with no state before it.
        """
        super().__init__(outbox.stats)
        self._batcher = batcher
        self._outbox = outbox
        self.queue_limit = queue_limit
        self._expected = expected
        self._durability = durability

    # How much waits and is under way: for back-pressure, metrics, and what is told to the other stages ----------

    @property
    def room(self) -> bool:
        """Whether more records may be delivered. They may, in any case: nothing is lost, the bound is just passed."""
        outbox, parked, most = self._outbox, self.parked, self.queue_limit
        if outbox.unsettled + outbox.resting + parked >= most and (  # else few wait, and few are under way
            self._batcher.depth + parked >= most or not self._few_under_way(parked)
        ):
            return False
        return not self.reads_again or sum(share.refetch.held for share in self._shares.values()) < PAYLOAD_BYTES

    def _few_under_way(self, parked: int) -> bool:
        outbox = self._outbox
        under_way = outbox.unsettled - self._batcher.aside + outbox.resting + parked
        return under_way < _UNSETTLED_PER_QUEUED * self.queue_limit

    @property
    def depth(self) -> int:
        return self._batcher.depth

    @property
    def limit(self) -> int:
        """The most that a worker is given at once, of the worker that is given most."""
        return self._batcher.limit

    @property
    def unmet(self) -> bool:
        return self._batcher.unmet

    @property
    def unsettled(self) -> int:
        """How many requests are under way: parked, queued, running, or with messages not yet acknowledged."""
        return self._outbox.unsettled + self.parked

    @property
    def parked(self) -> int:
        return sum(len(share.refetch) for share in self._shares.values()) if self.reads_again else 0

    @property
    def resting(self) -> int:
        """How many requests wait for nothing but the states that they rest on to be durable."""
        return self._outbox.resting

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(self._shares)

    @property
    def reports(self) -> bool:
        return self._batcher.reports

    @property
    def view(self) -> StageView:
        return self._batcher.policy.view

    def load(self) -> Load:
        return self._batcher.load()

    # Records come ------------------------------------------------------------------------------------------------

    def deliver(self, now: float, delivery: Delivery) -> None:
        share = self._take(delivery)
        if share is not None:
            self._accept(now, share, delivery)
            self._drain(now)

    def fail(self, now: float, delivery: Delivery, reason: str, text: str = "") -> None:
        """Take one record that cannot be used as it is; its id is empty where none could be had."""
        delivery.unusable = Loss(FAILED, reason, text)
        share = self._take(delivery)
        if share is not None:
            self._refuse(now, share, delivery, delivery.unusable)

    def durability_changed(self, now: float) -> None:
        """Do what follows from what the version logs have learned. Deadness is learned here, or as a record comes."""
        if self._durability is None:
            return
        found = self._learned()
        for _, changes in found:
            for work in changes.settled:
                self._outbox.durable(work)
            for work in changes.cancelled:
                self._outbox.recalled(work)
        if any(changes.cancelled for _, changes in found):
            self._outbox.unsettled -= self.take_out(now, lambda work: work.dead)
        for share, changes in found:
            for copy in changes.again:
                self._again(now, share, copy)
        self._drain(now)

    def fetched(self, now: float, fetch: Fetch, payload: Any, loss: Loss | None = None) -> None:
        """Take the payload of a record that was read again; with `loss`, a stand-in for one that is gone."""
        super().fetched(now, fetch, payload, loss)
        self._drain(now)

    # Inside ----------------------------------------------------------------------------------------------------

    def _accept(self, now: float, share: Share, delivery: Delivery) -> None:
        if share.joins is not None:
            self._join(now, share, delivery)
            return
        work = self._work(now, share, delivery)
        if delivery.lost:  # none is sent to a stage that does not join; should one come, it goes on as what it is
            self._outbox.lose(work, None, delivery)
        else:
            self._enter(now, work)

    def _refuse(self, now: float, share: Share, delivery: Delivery, loss: Loss) -> None:
        outbox = self._outbox
        outbox.unsettled += 1
        letter = Work.of_record(now, share, delivery)
        if self._durability is not None and delivery.hop is not None:
            letter.marks = delivery.hop.marks
        outbox.bury(letter, delivery, loss)
        if not delivery.request_id:
            return
        # The record is done with its letter and with what it leads to; both hold its offset.
        share.offsets.hold(delivery.offset)
        if share.joins is None:
            outbox.lose(self._work(now, share, delivery), loss, delivery)
            return
        if not delivery.lost:
            known = delivery.hop is not None
            delivery.lost = (delivery.predecessor,) if known else self._expected(delivery.path)
        self._join(now, share, delivery, loss)
        self._drain(now)

    def _again(self, now: float, share: Share, copy: Copy) -> None:
        delivery, speculation = copy.delivery, share.speculation
        assert speculation is not None  # it gave the copy
        if copy.admitted:
            self._join(now, share, delivery, delivery.unusable)
            return
        taken = speculation.readmit(copy)
        if taken is Taken.REPEATED:
            self.stats.duplicates += 1
            share.offsets.done(delivery.offset)
        elif taken is Taken.FIRST and delivery.unusable is not None:
            self._refuse(now, share, delivery, delivery.unusable)
        elif taken is Taken.FIRST:
            self._accept(now, share, delivery)

    def _work(self, now: float, share: Share, delivery: Delivery) -> Work:
        work = Work.of_record(now, share, delivery)
        self._outbox.unsettled += 1
        if share.speculation is not None:
            work.marks = share.speculation.single(work, delivery)
        return work

    def _go_on(self, now: float, share: Share, verdict: Verdict, entry: Entry, gone: Loss | None = None) -> None:
        results, losses = entry.hand_over()
        work = Work.of_entry(now, share, entry, tuple(results))
        if share.speculation is not None:
            work.marks = share.speculation.closed(work, entry)
        self._outbox.unsettled += 1
        if gone is not None:
            parts = [*results, *(part for part, _ in losses)]
            self._outbox.lose(work, gone, next((part for part in parts if not part.dropped), parts[0]))
        elif verdict is Verdict.READY:
            self._enter(now, work)
        elif verdict is Verdict.LOST:
            lost, own = losses[0]
            self._outbox.lose(work, own, lost)
        else:
            self._outbox.lose(work, _ENDS[verdict], results[0] if results else losses[0][0])

    def take_out(self, now: float, unwanted: Callable[[Work], bool]) -> int:
        raise NotImplementedError

    def _drain(self, now: float) -> None:
        raise NotImplementedError
