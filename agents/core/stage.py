"""A stage's core: from the records of its input to the messages that it sends, and the offsets it may commit.

    record -> taken -> first copy? -> (joined with its other parts) -> queue and batches -> executed -> emits -> done

Invariants:

* An input record is done when everything that it led to is acknowledged by the broker: every successor's message, every
  tombstone, the outcome, the dead letter. A repetition is done at once: what the first copy led to holds the commit
  back, if that is still under way, as it has a lower offset.
* Every first copy leads to at least one message, or completes a join's entry that did. Nothing ends silently.
* A record waits in a join without taking room: back-pressure, which stops the reading, could otherwise keep away the
  very part that it waits for. What bounds joins is their time; beyond a number of bytes their parts' payloads are
  dropped, and read again when they are needed (`spillway.agents.core.joins`). A driver that
  bounds how much it keeps of what is not committed goes on reading where joins hold it (`Share.held_by_joins`).
* A loss is sent to every next join that would wait for this stage in vain, and to the gate in place of every terminal
  that will not report: `graph.losses`. A join takes a loss as that sender's delivery and decides by its own rule.
* What is known of a partition lives in one `Share`. Revoking the partition drops it: its queued requests leave the
  queue, its running ones end without emits, and acknowledgements for it change nothing. Its next owner starts from what
  was committed and repeats the rest; receivers know the repetitions by their hops.
* Behind a stateful stage it is done only when what it rests on is durable, too; what turns out dead leaves no trace
  (`spillway.agents.core.intake`, `spillway.agents.core.speculation`).

Order of calls: `assign` a partition, `remember` the records in the spans that it returns, in offset order, then
`deliver` from the committed offset on. With a `durability`, at each assignment: read the committed offset first, then
the version logs to the ends that they have by then, then `assign`; what the owner before knew to be dead would else
count as taken. After every call the driver drains `take_runs`, `take_emits` and `take_fetches`.
`now` is in unix seconds and never goes back.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from spillway.agents.core.actions import Failed, Ok, Work
from spillway.agents.core.intake import Intake
from spillway.agents.core.joins import JoinTable, PayloadRoom
from spillway.agents.core.outbox import Outbox
from spillway.agents.core.policy import Shortfall
from spillway.agents.core.request import Loss
from spillway.agents.core.share import Share
from spillway.checkpoint.notes import decode
from spillway.lineage import reasons
from spillway.lineage.message import DROPPED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from spillway.agents.core.actions import Emit, Result
    from spillway.agents.core.batching import Batch, Batcher
    from spillway.agents.core.join_rules import Rule
    from spillway.agents.core.policy import Refusal, StageState
    from spillway.agents.core.request import Request
    from spillway.agents.core.step import Enter, Step
    from spillway.checkpoint.dedup import Span
    from spillway.checkpoint.durability import Durability
    from spillway.lineage.ports import Commit
    from spillway.topology.routing import Graph

QUEUE_LIMIT = 1_024
DEATHS = 3  # workers that may end with a query before it fails
UNSERVED_SECONDS = 20.0  # after its deadline, for which a query waits where there is no worker
_UNDER_ANY_POLICY = {reasons.LANE_FULL, reasons.NO_SPARE_TIME, reasons.NO_VARIANT, reasons.NO_WORKER}
_LOOK_SECONDS = 1.0


class StageCore(Intake):
    """One replica of one stage."""

    share_type = Share
    joins_type = JoinTable
    outbox_type = Outbox

    def __init__(
        self,
        graph: Graph,
        stage: str,
        batcher: Batcher,
        *,
        rule: Rule | None = None,
        epoch: int = 0,
        queue_limit: int = QUEUE_LIMIT,
        durability: Durability | None = None,
        steps: Sequence[Step] = (),
    ) -> None:
        """`rule`: how this stage joins; needed if it has several predecessors.

        `durability` is needed behind a stateful stage; its driver then calls `durability_changed`, too. `steps`: in the
        order in which queries come to them (`spillway.agents.core.step`); with any the driver drains `take_hits`, too.
        """
        if graph.is_join(stage) and rule is None:
            raise ValueError(f"stage {stage} joins and needs a join rule")
        outbox = self.outbox_type(graph, stage, epoch)
        super().__init__(batcher, outbox, queue_limit, partial(graph.expected, stage), durability)
        self.stage = stage
        self.epoch = epoch
        self._rule = rule if graph.is_join(stage) else None
        self.reads_again = self._rule is not None
        self._payloads = PayloadRoom() if rule is None else PayloadRoom(rule.payload_bytes)
        self._runs: list[Batch] = []
        self.hits: list[tuple[Work, Any]] = []  # see `take_hits`
        self._steps = tuple(steps)
        self._enter = self._way_in(batcher.push)

    # Partitions come and go ------------------------------------------------------------------------------------

    def assign(self, partition: int, committed: int, note: str = "") -> tuple[Span, ...]:
        """Start on a partition at its committed offset (or where reading starts, if nothing was committed).

        Returns the spans of offsets below it to read again and to `remember`. Raises CheckpointError for a note
        that was not written by `commits`.
        """
        joins = None
        if self._rule is not None:
            joins = self.joins_type(self._rule, self._expected, self._payloads)
        share = self._shares[partition] = self.share_type(partition, committed, joins)
        if self._durability is not None:
            share.speculate(self._durability)
        return decode(note, committed).spans

    def revoke(self, now: float, partition: int) -> None:
        """Let a partition go. What was taken and not committed is its next owner's to repeat."""
        share = self._shares.pop(partition, None)
        if share is None:
            return
        share.live = False
        if share.joins is not None:
            share.joins.end()
        self._outbox.unsettled -= self.take_out(now, lambda work: work.share is share)
        self._outbox.resting -= share.resting
        self._drain(now)

    def commits(self) -> dict[int, Commit]:
        """Return what can be committed and is not yet: the offset and the note to commit with it, by partition."""
        return {p: share.commit() for p, share in self._shares.items() if share.offsets.position > share.committed}

    # Time goes on ----------------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        self._batcher.advance(now)
        for step in reversed(self._steps):
            step.advance(now)
        if self._batcher.depth:
            self._fail_unserved(now)
        if self._rule is not None:
            self._expire(now)
        self._drain(now)

    def next_wake(self, now: float) -> float | None:
        """When `advance` next has something to do; None if only records and completions bring anything."""
        batcher = self._batcher
        wake = batcher.next_wake(now) if batcher.timed else None
        if batcher.depth and not batcher.workers:
            wake = now + _LOOK_SECONDS if wake is None else min(wake, now + _LOOK_SECONDS)
        for step in self._steps:
            wake = _sooner(now, wake, step.next_wake(now))
        expiry = None if self._rule is None else self._next_expiry()
        return wake if expiry is None else expiry if wake is None else min(wake, expiry)

    # Executions and acknowledgements ---------------------------------------------------------------------------

    def complete(self, now: float, batch: Batch, results: Sequence[Result], executed: float) -> None:
        """Take the results of a batch, one for each of its requests in their order; it ran for `executed` s."""
        if len(results) != len(batch.requests):
            raise ValueError(f"{len(batch.requests)} requests, {len(results)} results")
        self._batcher.complete(now, batch.worker, executed)
        for request, result in zip(batch.requests, results, strict=True):
            self._settle(now, request, result)
        for step in self._steps:
            step.answered(now, batch)
        self._drain(now)

    def _settle(self, now: float, request: Request, result: Result) -> None:
        assert isinstance(request, Work)  # the core pushed it
        for step in self._steps:
            step.executed(now, request, result)
        self._end(request, result)

    def _end(self, request: Work, result: Result) -> None:
        if request.settled:
            return
        for step in self._steps:
            step.settled(request, result)
        case, outbox = request.case, self._outbox
        if not request.share.live or (case is not None and case.dead):
            request.settled = True
            outbox.unsettled -= 1
        elif isinstance(result, Ok):
            request.settled = True
            outbox.result(request, result)
        elif not self._ask_steps(request, result):
            request.settled = True
            outbox.failure(request, result)

    # Workers come and go ---------------------------------------------------------------------------------------

    def attach(self, now: float, worker: int) -> None:
        self._batcher.attach(now, worker)
        self._drain(now)

    def drain(self, now: float, worker: int) -> bool:
        gone = self._batcher.drain(now, worker)
        self._drain(now)
        return gone

    def lose(
        self,
        now: float,
        worker: int,
        results: Sequence[Result | None] = (),
        blamed: Collection[int] = (),
        why: str = "",
    ) -> None:
        """Take note that a worker is gone, with the batch that it ran, if it ran one.

        `results` are what came of its first queries before that. `blamed` are the places in the batch of the queries
        that may have caused it: after `DEATHS` such ends a query fails. All others enter the queue anew and are judged
        anew. A batch with a query that is `suspect` is to be run singly, so that the next end names it.
        """
        again: list[Request] = []
        batch = self._batcher.lose(now, worker)
        if batch is not None:
            for step in self._steps:
                step.lost(batch)
        for place, request in enumerate(() if batch is None else batch.requests):
            result = results[place] if place < len(results) else None
            request.deaths += place in blamed
            if result is None and request.deaths >= DEATHS:
                at = f"partition {request.partition} offset {request.parts[0].offset}"
                result = Failed(
                    reasons.MODEL_DIED, f"{at}: {request.deaths} workers ended while they ran it; the last: {why}"
                )
            if result is not None:
                self._settle(now, request, result)
            elif isinstance(request, Work) and (request.settled or request.due):
                self._leave(now, request)
            elif isinstance(request, Work) and (not request.share.live or request.dead):
                self._outbox.unsettled -= 1
                self._leave(now, request)
            else:
                again.append(request)
        self._batcher.requeue(now, again)
        self._drain(now)

    def _fail_unserved(self, now: float) -> None:
        """Fail what nobody serves: there has been no worker, and its deadline is long over."""
        if self._batcher.workers:
            return
        for request in self._batcher.remove(now, lambda request: request.deadline + UNSERVED_SECONDS < now):
            self._settle(now, request, Failed(reasons.NO_WORKER, f"stage {self.stage!r} had no ready worker"))

    def acked(self, emit: Emit) -> None:
        self._outbox.acked(emit)

    def acked_all(self, emits: Iterable[Emit]) -> None:
        for emit in emits:
            self._outbox.acked(emit)

    def take_runs(self) -> list[Batch]:
        """Give the batches to run now, each on its instance; every one is answered by `complete`."""
        runs, self._runs = self._runs, []
        return runs

    def take_hits(self) -> list[tuple[Work, Any]]:
        """Give the requests whose answer is known, with it; every one is answered by `answered`."""
        hits, self.hits = self.hits, []
        return hits

    def answered(self, now: float, results: Iterable[tuple[Work, Result]]) -> None:
        """Take the results of requests whose answers were known."""
        for work, result in results:
            self._end(work, result)
        self._drain(now)

    def take_emits(self) -> list[Emit]:
        """Give the messages to produce, in order; every one is answered by `acked`."""
        return self._outbox.take()

    # What steps ask for (`spillway.agents.core.step`) -------------------------------------------------------------

    def hit(self, work: Work, value: Any) -> None:
        """Answer a query with what is known."""
        self.hits.append((work, value))

    def answer(self, work: Work, result: Ok) -> None:
        """Settle a query that nothing has settled with an answer that was made for it."""
        work.settled = True
        self._outbox.result(work, result)

    @property
    def workers(self) -> int:
        return self._batcher.workers

    def lend(self, now: float, worker: int) -> bool:
        return self._batcher.lend(now, worker)

    def give_back(self, now: float, worker: int) -> None:
        """Return a worker that was lent, which then runs batches again."""
        self._batcher.complete(now, worker)
        self._drain(now)

    def spare(self, now: float, works: Collection[Work]) -> None:
        """Answer those without their workers that can be; they wait no more."""
        spared = {id(work) for work in works if not work.dead and self._spare(work)}
        if spared:
            self.take_out(now, lambda work: id(work) in spared)

    def take_out(self, now: float, unwanted: Callable[[Work], bool]) -> int:
        """Have the queries that `unwanted` picks wait no more; how many they are. They stay under way."""
        count = sum(step.remove(unwanted) for step in self._steps)
        removed = self._batcher.remove(now, lambda request: isinstance(request, Work) and unwanted(request))
        for request in removed:
            self._leave(now, request)
        return count + len(removed)

    def follow_up(self, now: float) -> None:
        """Do what follows of a change that none of the driver's calls to the core made."""
        self._drain(now)

    # What policies hear of one another -------------------------------------------------------------------------

    def report(self, now: float) -> StageState | None:
        return self._batcher.report(now)

    def tick(self, now: float, states: Mapping[str, Sequence[StageState]]) -> None:
        """Give the policy the newest states of all stages, once a period; a silent stage is missing."""
        self._batcher.tick(now, states)
        for step in self._steps:
            step.tick(now, states)
        self._drain(now)

    # Inside ----------------------------------------------------------------------------------------------------

    def _way_in(self, enter: Enter) -> Enter:
        """Return the way of a query through all steps to `enter`."""
        for step in reversed(self._steps):
            step.begin(self, enter)
            enter = step.admit
        return enter

    def _spare(self, work: Work) -> bool:
        """Answer a query without its worker; False where there is no way to."""
        return self._ask_steps(work) or work.settled or work.due

    def _ask_steps(self, work: Work, failed: Failed | None = None) -> bool:
        return any(step.spare(work, failed) for step in reversed(self._steps))

    def _leave(self, now: float, request: Request) -> None:
        if isinstance(request, Work):
            for step in self._steps:
                step.left(now, request)

    def _drain(self, now: float) -> None:
        batcher = self._batcher
        if batcher.starts:
            for step in self._steps:
                for batch in batcher.starts:
                    step.started(now, batch)
            self._runs += batcher.starts
            batcher.starts.clear()
        while batcher.drops:
            drops, batcher.drops = batcher.drops, []
            for request, refusal in drops:
                assert isinstance(request, Work)  # the core pushed it
                if request.offline or not self._spare(request):
                    request.settled = True
                    self._outbox.lose(request, _dropped(refusal, batcher.policy.setting), request)
                self._leave(now, request)


def _dropped(refusal: Refusal, policy: str) -> Loss:
    text = refusal.text
    if policy and refusal.reason not in _UNDER_ANY_POLICY:
        text += f" (dropped by policy {policy}; 'policy: naive' drops nothing)"
    short = refusal.now + refusal.remaining - refusal.deadline if isinstance(refusal, Shortfall) else 0.0
    return Loss(DROPPED, refusal.reason, text, short)


def _sooner(now: float, wake: float | None, due: float | None) -> float | None:
    if due is None:
        return wake
    return max(now, due) if wake is None else max(now, min(wake, due))
