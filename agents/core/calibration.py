"""How far estimates were from what happened, and how much time requests had left: figures of bounded memory. Pure.

Two things are kept for one queue of a stage.

`Calibration`: PARD's eq. 2 takes a visit to a stage apart into a queueing delay Q, a batch wait W and an execution D.
The stage tells the others what to expect of each (`StageState`), and they put it into eq. 3; here its own visits are
held to its own word, so nothing has to travel for it. `told(queueing, wait, duration)` with each state that it reports;
`happened(queued, waited, executed)` with every request whose batch has ended. A term is one of `TERMS`, "visit" the sum
of the three. The error of a term is what happened less what was told: above 0, the others believed in too little and
kept what was lost later; below 0, they dropped too much.

`Budgets`: `left`, by fate: of each request that enters a batch (KEPT) or is dropped instead (`refused(left, short)`),
the seconds to its deadline at that moment (below 0: past it). `short`: by how many seconds the estimate missed the
deadline (0 where the policy makes no estimate); many drops that are short by little say that better estimates, or a
little more capacity, would have saved them. `consumption`: of each that leaves, from arrival at the stage to the end of
its batch, the budget that the stage took (Fig. 12 of the paper).

The metrics that tell of them have the names of `spillway.lineage.metric_names`: ESTIMATE_ERROR_SECONDS,
TOLD_SECONDS_TOTAL and HAPPENED_SECONDS_TOTAL by term, BUDGET_SECONDS by fate (`FATES`), SHORTFALL_SECONDS,
CONSUMED_SECONDS. A `Histogram` has `counts`, `total` and `buckets()`, which gives the cumulative counts by upper bound
as Prometheus wants them.

All durations in seconds. Nothing raises; a value that is no number (NaN) is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from math import isfinite
from typing import Final

QUEUEING, WAIT, EXECUTION, VISIT = "queueing", "wait", "execution", "visit"
TERMS: Final = (QUEUEING, WAIT, EXECUTION, VISIT)
KEPT, REFUSED = "kept", "refused"
FATES: Final = (KEPT, REFUSED)

_STEPS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIGNED: Final = (*(-step for step in reversed(_STEPS)), 0.0, *_STEPS)  # bounds of what may be below 0
POSITIVE: Final = _STEPS


class Histogram:
    """Counts of seconds by upper bound, and their sum."""

    def __init__(self, bounds: tuple[float, ...] = SIGNED) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        if isfinite(seconds):
            self.counts[bisect_left(self.bounds, seconds)] += 1
            self.total += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        rows, cumulative = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            cumulative += count
            rows.append((bound, float(cumulative)))
        return rows


class Calibration:
    """What a stage told of Q, W and D, beside what then happened."""

    def __init__(self) -> None:
        self._told: tuple[float, float, float] | None = None
        self.errors = {term: Histogram() for term in TERMS}
        self.told_total = dict.fromkeys(TERMS, 0.0)  # summed over the requests that `errors` counts
        self.happened_total = dict.fromkeys(TERMS, 0.0)

    def told(self, queueing: float, wait: float, duration: float) -> None:
        """Note what the others are told to expect from now on: q, the mean batch wait, d."""
        if isfinite(queueing) and isfinite(wait) and isfinite(duration):
            self._told = (queueing, wait, duration)

    def happened(self, queued: float, waited: float, executed: float) -> None:
        """Hold one request's visit to what was last told; before anything was told there is nothing to hold it to."""
        told = self._told
        if told is None or not (isfinite(queued) and isfinite(waited) and isfinite(executed)):
            return
        self._compare(QUEUEING, told[0], queued)
        self._compare(WAIT, told[1], waited)
        self._compare(EXECUTION, told[2], executed)
        self._compare(VISIT, sum(told), queued + waited + executed)

    def _compare(self, term: str, told: float, happened: float) -> None:
        self.errors[term].observe(happened - told)
        self.told_total[term] += told
        self.happened_total[term] += happened


class Budgets:
    """The time that requests had left when they were judged, and what the stage took of it."""

    def __init__(self) -> None:
        self.left = {fate: Histogram() for fate in FATES}
        self.shortfall = Histogram(POSITIVE)
        self.consumption = Histogram(POSITIVE)

    def refused(self, left: float, short: float = 0.0) -> None:
        """Count one that was dropped, by an estimate that missed the deadline by `short` seconds (0: by none)."""
        self.left[REFUSED].observe(left)
        if short > 0:
            self.shortfall.observe(short)
