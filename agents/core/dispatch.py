"""Which other workers may answer a batch's queries, beside its own: copies of it, or code over several batches.

A plain stage has no dispatch: one worker gets a batch, and its answer settles it. A dispatch has pools of its own,
which no batch waits for. Their work is *extras*, each made of a *group* of batches:

* a copy: a group of one batch. Its extra is that batch again, sent at once or only when its own worker is slow
  (Dean and Barroso's hedged request), to a worker with the same model or a cheaper one;
* a code (ParM, sections 3.1 and 3.2): a group of `width` batches that started one after the other, and an extra for
  each of its `rows`. With as many rows answered as batches are missing, the missing answers can be made.

Rules:

* A batch is never delayed for its group. Its worker's own answer settles what is not settled by then.
* Answers are made of workers' own answers alone, never of others that were made.
* A group of several is due when it is full, or `wait` seconds after its first batch started. Its batches run on
  distinct workers where there are enough, so that one slow worker costs a group one answer.
* An extra that waits is given up when its group misses nothing any more. At most `room` wait for a pool; beyond, the
  newest is given up. Both cost nothing but the help that they would have been.
* Workers that are `shared` are the lane's, too, under numbers below 0 (`number_of`). A batch goes before an extra: an
  extra is given to one that is idle. With a code, extras rest while they do not shorten the tail
  (`spillway.agents.core.shadow`); then its workers do nothing but the lane's batches.

The dispatch decides; the driver makes the extras, runs them and makes answers of theirs. `now` does not decrease.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.core.actions import Ok, Work
from spillway.agents.core.shadow import Shadow
from spillway.agents.core.step import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.agents.core.actions import Failed, Result
    from spillway.agents.core.agreement import Agreement
    from spillway.agents.core.deadlines import Deadlines
    from spillway.agents.core.workers import Batch

_SEEN: Final = 200  # batches whose durations the quantile is of
_LEAST: Final = 20  # of them, before any batch counts as slow
VERSION: Final = "version"  # why a code pauses: its parity models are another version's of the deployed model
FLOOR: Final = "agreement"  # or too few of the answers that it makes agree with the exact ones
TAIL: Final = "tail"  # or batches wait for its workers longer than it saves
WHY_PAUSED: Final = {
    VERSION: "its parity models belong to another version of the model; train them again with 'spillway train parity' "
    "and restart",
    FLOOR: "too few reconstructed answers agree with the exact ones (coding.floor); retrying after a minute. If this "
    "persists, train parity models on recent queries: 'spillway train parity'",
    TAIL: "the slowest hundredth of batches would be no slower without it. Its workers run the model's own batches, "
    "and it is tried again in a while. If this persists, remove the section and have as many more workers",
}
_SAMPLED: Final = 8  # of so many groups that missed nothing one is graded
_OPEN: Final = 4  # groups that fill at the same time, for the sake of distinct workers


@dataclass(slots=True, eq=False)
class Group:
    """Batches whose answers can be made of one another's and of the extras'."""

    batches: list[Batch] = field(default_factory=list)
    answered: set[int] = field(default_factory=set)  # places of the batches whose own workers have answered
    made: set[int] = field(default_factory=set)  # places of the batches that answers were asked for
    rows: dict[int, Extra] = field(default_factory=dict)  # the extras that are answered
    note: Any = None  # the driver's
    answers: dict[int, Any] = field(default_factory=dict)  # what was made, by place; the driver's

    @property
    def missing(self) -> list[int]:
        """The places of the batches whose own answers are not there."""
        return [place for place in range(len(self.batches)) if place not in self.answered]

    @property
    def wanted(self) -> list[int]:
        """The places of the batches that answers should still be made for."""
        return [place for place in self.missing if place not in self.made]


@dataclass(slots=True, eq=False)
class Extra:
    """Work for one worker of a dispatch's own pool; `outputs`, `seconds` and `version` are the driver's."""

    group: Group
    row: int
    worker: int = -1
    outputs: Any = None
    seconds: float = 0.0
    version: str | None = None  # of the model that ran it
    requests: tuple[()] = ()  # it owns none


@dataclass(slots=True, frozen=True)
class Recovery:
    """Answers to make for the batches of a group at `places`, of its own answers and the rows that are there."""

    group: Group
    places: tuple[int, ...]


Made = list[tuple["Batch", list["Result | None"]]]  # answers to batches' queries, by place


@dataclass(slots=True)
class DispatchStats:
    """What a dispatch counted since it began."""

    batches: int = 0
    started: int = 0  # extras that a worker was given
    answered: int = 0
    paused: int = 0  # groups that got no extras, as the code pauses
    shed: int = 0  # extras that found no room, or no budget
    recovered: int = 0  # queries that were settled by answers that were made


@dataclass(slots=True, eq=False)
class _Row:
    """A pool and the extras that wait for it."""

    waiting: deque[Extra] = field(default_factory=deque)
    idle: dict[int, None] = field(default_factory=dict)  # in the order in which they became so
    running: dict[int, Extra] = field(default_factory=dict)
    draining: set[int] = field(default_factory=set)


class Dispatch(Step):
    """The extras of one stage's batches, and the answers that are made of theirs; offline batches have none."""

    def __init__(
        self,
        *,
        width: int = 1,
        rows: int = 1,
        wait: float = 0.0,
        quantile: float | None = None,
        budget: float = 1.0,
        room: int = 64,
        paused: str = "",
        agreement: Agreement | None = None,
        release: Deadlines | None = None,
        shared: bool = False,
    ) -> None:
        """`width`: batches of a group; `rows`: extras of a group, each with a pool of its own.

        `quantile`: a batch is copied only when it takes longer than this quantile of batches' durations; None: at
        once. `budget`: the most extras, as a share of the batches that started. `paused`: why there are no extras.
        With an `agreement`, of a code, answers that were made are graded. They wait for exact ones until `release`,
        a step that the stage has before this one; None: not at all. `shared`: its workers run the lane's batches, too.
        """
        self.agreement = agreement
        self.paused = paused
        self._width = width
        self._wait = wait
        self._quantile = quantile
        self._budget = budget
        self._room = room
        self._rows = [_Row() for _ in range(rows)]
        self._open: list[Group] = []
        self._of: dict[Batch, tuple[Group, int]] = {}  # the batches whose workers have not answered
        self._due: list[tuple[float, int, Group]] = []
        self._numbers = count()
        self._durations: deque[float] = deque(maxlen=_SEEN)
        self._recoveries: list[Recovery] = []
        self._gradings: list[Recovery] = []
        self._complete = 0  # groups that missed nothing when their extras were answered
        self.stats = DispatchStats()
        self.release = release
        self.shared = shared
        self._shadow = Shadow() if shared and width > 1 else None

    # Batches ----------------------------------------------------------------------------------------------------

    def started(self, now: float, batch: Batch) -> None:
        if batch.offline:
            return
        self.stats.batches += 1
        if self.paused != VERSION:
            self.paused = self._why_paused(now)
        if self._shadow is not None:
            self._shadow.started(batch)
        group = self._group_for(batch)
        first = not group.batches
        self._of[batch] = (group, len(group.batches))
        group.batches.append(batch)
        if self._width > 1:
            if len(group.batches) == self._width:
                self._close(group)
            elif first:
                self._later(now + self._wait, group)
        elif self._quantile is None:
            self._send(group)
        elif len(self._durations) >= _LEAST:
            ordered = sorted(self._durations)
            self._later(now + ordered[int(self._quantile * (len(ordered) - 1))], group)

    def answered(self, now: float, batch: Batch) -> None:
        if batch.offline:
            return
        self._durations.append(now - batch.started)
        if self._shadow is not None:
            self._shadow.answered(now, batch, self._stage.workers)
        group, place = self._of.pop(batch)
        group.answered.add(place)
        if place in group.made and self.agreement is not None:
            self._gradings.append(Recovery(group, (place,)))
        self._look(now, group)

    def lost(self, batch: Batch) -> None:
        """Note that a batch's worker will not answer it; the extras still may."""
        if self._shadow is not None:
            self._shadow.lost(batch)
        self._of.pop(batch, None)  # an offline one has no group

    def recovered(self, now: float, batch: Batch, results: Sequence[Result | None]) -> None:
        """Take answers that were made for a batch, by place; None where none could be made. Failures are none.

        A query that waits anew, as its worker was lost, waits no more.
        """
        settled = False
        for work, result in zip(batch.requests, results, strict=True):
            assert isinstance(work, Work)
            if not isinstance(result, Ok) or work.settled or not work.share.live or work.dead:
                continue
            work.made = result
            if self.release is None or self.release.over(now, work):
                settled |= self.spare(work, None)
        if settled:
            self._stage.take_out(now, lambda work: work.settled)
            self._stage.follow_up(now)

    def spare(self, work: Work, _failed: Failed | None) -> bool:
        if work.made is None or work.settled:
            return False
        self.stats.recovered += 1
        self._stage.answer(work, work.made)
        return True

    # Its own workers --------------------------------------------------------------------------------------------

    def number_of(self, row: int, worker: int) -> int:
        """The number in the lane of a worker that is shared."""
        return -1 - (worker * len(self._rows) + row)

    def worker_of(self, number: int) -> tuple[int, int]:
        """The row and the worker that have a number in the lane."""
        worker, row = divmod(-1 - number, len(self._rows))
        return row, worker

    def attach(self, row: int, worker: int) -> None:
        """Take one more worker for extras; one that is shared is in the lane by now."""
        self._rows[row].idle[worker] = None

    def drain(self, row: int, worker: int) -> bool:
        """Give a worker no more extras; True if it runs nothing."""
        pool = self._rows[row]
        if worker in pool.running:
            pool.draining.add(worker)
            return False
        pool.idle.pop(worker, None)
        return True

    def lose(self, row: int, worker: int) -> None:
        """Note that a worker is gone. What it ran is not run again: by then it would come too late."""
        pool = self._rows[row]
        pool.idle.pop(worker, None)
        pool.running.pop(worker, None)
        pool.draining.discard(worker)

    def done(self, now: float, extra: Extra) -> None:
        pool = self._rows[extra.row]
        del pool.running[extra.worker]
        if extra.worker in pool.draining:
            pool.draining.discard(extra.worker)
        else:
            pool.idle[extra.worker] = None
        self.stats.answered += 1
        extra.group.rows[extra.row] = extra
        self._look(now, extra.group)
        if self.shared:
            self._stage.give_back(now, self.number_of(extra.row, extra.worker))

    @property
    def under_way(self) -> int:
        """How many batches, groups and extras are under way."""
        extras = sum(len(row.waiting) + len(row.running) for row in self._rows)
        return len(self._of) + len(self._open) + extras

    # Time, and what to do ---------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            group = heapq.heappop(self._due)[2]
            if self._width == 1:
                self._send(group)
            elif group in self._open:
                self._close(group)

    def next_wake(self, _now: float) -> float | None:
        return self._due[0][0] if self._due else None

    def take_extras(self, now: float) -> list[Extra]:
        """Give the extras to run now, each on its `worker`; `done` or `lose` answers each."""
        run: list[Extra] = []
        for row, pool in enumerate(self._rows):
            while (extra := self._next(pool)) is not None:
                free = (w for w in pool.idle if not self.shared or self._stage.lend(now, self.number_of(row, w)))
                if (worker := next(free, None)) is None:
                    break
                pool.waiting.popleft()
                extra.worker = worker
                del pool.idle[worker]
                pool.running[worker] = extra
                self.stats.started += 1
                run.append(extra)
        return run

    def take_recoveries(self) -> list[Recovery]:
        recoveries, self._recoveries = self._recoveries, []
        return recoveries

    def take_gradings(self) -> list[Recovery]:
        """Give what answers to grade by their batches' own, those that were made or would have been."""
        gradings, self._gradings = self._gradings, []
        return gradings

    # Inside -----------------------------------------------------------------------------------------------------

    def _group_for(self, batch: Batch) -> Group:
        if self._width == 1:
            return Group()
        for group in self._open:
            if all(other.worker != batch.worker for other in group.batches):
                return group
        if len(self._open) >= _OPEN:
            return self._open[0]
        group = Group()
        self._open.append(group)
        return group

    def _later(self, due: float, group: Group) -> None:
        heapq.heappush(self._due, (due, next(self._numbers), group))

    def _close(self, group: Group) -> None:
        self._open.remove(group)
        self._send(group)

    def _send(self, group: Group) -> None:
        if not group.missing:
            return
        if self.paused:
            self.stats.paused += 1
            return
        for row, pool in enumerate(self._rows):
            asked = self.stats.started + sum(len(each.waiting) for each in self._rows)
            over = asked + 1 > self._budget * self.stats.batches * len(self._rows)
            room = self._room if self.shared else self._room + len(pool.idle)
            if len(pool.waiting) >= room or (over and self._budget < 1):
                self.stats.shed += 1
            else:
                pool.waiting.append(Extra(group, row))

    def _next(self, pool: _Row) -> Extra | None:
        """The extra that has waited for longest, of those that can still help."""
        while pool.waiting and not pool.waiting[0].group.wanted:
            pool.waiting.popleft()
        return pool.waiting[0] if pool.waiting else None

    def _why_paused(self, now: float) -> str:
        if self.agreement is not None and self.agreement.paused(now):
            return FLOOR
        return TAIL if self._shadow is not None and self._shadow.resting(now) else ""

    def _look(self, now: float, group: Group) -> None:
        """Ask for the answers that can be made now and could not before."""
        wanted = group.wanted
        if wanted and len(group.missing) <= len(group.rows):
            group.made.update(wanted)
            self._recoveries.append(Recovery(group, tuple(wanted)))
            if self._shadow is not None:
                for place in wanted:
                    self._shadow.recovered(now, group.batches[place])
        elif self.agreement is not None and group.rows and not group.missing and not group.made:
            self._complete += 1
            if self._complete % _SAMPLED == 1:
                self._gradings.append(Recovery(group, (self._complete // _SAMPLED % len(group.batches),)))
