"""What became of the queries of a load, one by one, as their outcomes come in."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from spillway.lineage import message
from spillway.producers.report import KINDS, MISSING, StageTotals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from spillway.lineage.errors import SpillwayError
    from spillway.lineage.message import Outcome, StageTiming


@dataclass(slots=True)
class Witness:
    """Give its `observe` to the load's pace; timings are kept of one query in `every`, by index."""

    every: int = 1
    lost_at: dict[int, str] = field(default_factory=dict)  # stage
    timings: dict[int, list[StageTiming]] = field(default_factory=dict)

    def observe(self, index: int, outcome: Outcome) -> None:
        if outcome.kind != message.PREDICTION:
            self.lost_at[index] = outcome.stage
        if index % self.every == 0:
            self.timings[index] = outcome.timings


@dataclass(slots=True)
class StageSums:
    """What outcomes say of one stage: sums over the queries that went through it. Durations in seconds."""

    queries: int = 0
    batches: float = 0.0  # each query counts as its share of a batch
    queued: float = 0.0
    waited: float = 0.0
    busy: float = 0.0  # each query's share
    dropped: int = 0
    failed: int = 0


@dataclass(slots=True, frozen=True)
class LoadResult:
    """One element per query, by index; times in seconds from the start of the schedule."""

    due: NDArray[np.float64]
    sent: NDArray[np.float64]
    finished: NDArray[np.float64]  # NaN where the query is missing
    kind: NDArray[np.int8]  # MISSING, PREDICTION, DROPPED or FAILED of spillway.producers.report
    spent: NDArray[np.float64]  # its share of the executions that it was in
    duplicates: int
    reasons: Mapping[tuple[str, str, str], int]  # (kind, stage, reason) of what was dropped or failed -> how many
    errors: Mapping[str, int]  # why queries are missing -> how many
    stages: Mapping[str, StageSums] = field(default_factory=dict)

    def stage_totals(self, names: Sequence[str], instances: Mapping[str, int]) -> dict[str, StageTotals]:
        """Stage totals as far as the outcomes tell them: without what was lost on the way to a later drop."""
        return {name: _totals(self.stages.get(name, StageSums()), instances[name]) for name in names}

    def save(self, file: Path) -> None:
        np.savez_compressed(
            file, due=self.due, sent=self.sent, finished=self.finished, kind=self.kind, spent=self.spent
        )


class Tally:
    """Collects a load's outcomes. `sent` is the sender's to call, the rest the reply thread's."""

    def __init__(self, due: NDArray[np.float64], observe: Callable[[int, Outcome], None] | None = None) -> None:
        count = len(due)
        self.start = 0.0  # of the schedule, monotonic
        self.ended = 0
        self.done = threading.Event()
        self._observe = observe
        self._due = due
        # Lists take single elements faster than arrays do.
        self._sent = [0.0] * count
        self._finished = [float("nan")] * count
        self._spent = [0.0] * count
        self._kind = bytearray(count)  # MISSING is 0
        self._duplicates = 0
        self._reasons: Counter[tuple[str, str, str]] = Counter()
        self._errors: Counter[str] = Counter()
        self._stages: defaultdict[str, StageSums] = defaultdict(StageSums)

    def waiter(self, index: int) -> _Query:
        return _Query(self, index)

    def sent(self, index: int, at: float) -> None:
        self._sent[index] = at

    def answered(self, index: int, outcome: Outcome, at: float) -> None:
        """Take an outcome; a second one of the same query only counts."""
        if self._kind[index] != MISSING:
            self._duplicates += 1
            return
        self._kind[index] = KINDS[outcome.kind]
        self._finished[index] = at
        if outcome.kind != message.PREDICTION:
            self._reasons[outcome.kind, outcome.stage, outcome.reason] += 1
            lost = self._stages[outcome.stage]
            if outcome.kind == message.DROPPED:
                lost.dropped += 1
            else:
                lost.failed += 1
        spent = 0.0
        for timing in outcome.timings:
            share = timing.executed / max(1, timing.batch)
            spent += share
            sums = self._stages[timing.stage]
            sums.queries += 1
            sums.batches += 1 / max(1, timing.batch)
            sums.queued += timing.queued
            sums.waited += timing.waited
            sums.busy += share
        self._spent[index] = spent
        if self._observe is not None:
            self._observe(index, outcome)
        self._end()

    def failed(self, index: int, error: SpillwayError) -> None:
        if self._kind[index] == MISSING:
            self._errors[type(error).__name__] += 1
            self._end()

    def result(self) -> LoadResult:
        return LoadResult(
            due=self._due,
            sent=np.array(self._sent) - self.start,
            finished=np.array(self._finished) - self.start,
            kind=np.frombuffer(bytes(self._kind), dtype=np.int8),
            spent=np.array(self._spent),
            duplicates=self._duplicates,
            reasons=dict(self._reasons),
            errors=dict(self._errors),
            stages=self._stages,
        )

    def _end(self) -> None:
        self.ended += 1
        if self.ended == len(self._kind):
            self.done.set()


class _Query:
    """The waiter of one query; it stays, to count what should not come."""

    __slots__ = ("_index", "_tally")

    stays = True

    def __init__(self, tally: Tally, index: int) -> None:
        self._tally = tally
        self._index = index

    def answered(self, outcome: Outcome, at: float) -> None:
        self._tally.answered(self._index, outcome, at)

    def failed(self, error: SpillwayError) -> None:
        self._tally.failed(self._index, error)


def _totals(sums: StageSums, instances: int) -> StageTotals:
    count = max(1, sums.queries)
    return StageTotals(
        received=sums.queries + sums.dropped + sums.failed,
        batches=round(sums.batches),
        queries=sums.queries,
        dropped=sums.dropped,
        failed=sums.failed,
        queued=sums.queued / count,
        waited=sums.waited / count,
        executed=sums.busy / sums.batches if sums.batches else 0.0,
        busy=sums.busy,
        instances=instances,
    )
