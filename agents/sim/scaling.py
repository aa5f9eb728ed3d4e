"""Workers that are added and taken away at run time, by the load (PARD, section 5.1).

Once a period each stage is given as many workers as the recent rate of requests needs, at the throughput of a worker
with full batches: n = rate / (use * batch / d(batch)), rounded up. A new worker serves after its cold start, in which
its model is loaded. One that is not needed any more goes only after it was not needed for a while, since a cold start
costs more than an idle worker; it takes no more requests and ends with those that it has.

The rate is that of the requests sent, not of those that reach the stage: a policy that drops early must not keep the
later stages small, and every policy is to be compared at the same sizes. For stages behind a choice it is too high.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil, inf

from lineage.errors import UsageError


@dataclass(frozen=True, slots=True)
class Scaling:
    """How a simulated pipeline follows its load. Times in seconds."""

    period: float = 1.0  # between two decisions
    window: float = 5.0  # over which requests are counted
    use: float = 0.8  # the share of its full-batch throughput that a worker is planned to serve
    cold_start: float = 8.0  # from the decision to a worker's first batch
    keep: float = 30.0  # for how long a worker that is not needed is kept
    least: int = 1  # workers of a stage
    most: int = 64

    def __post_init__(self) -> None:
        times = (self.period, self.window, self.use)
        if not (all(0 < each < inf for each in times) and 0 <= self.cold_start < inf and 0 <= self.keep < inf):
            raise UsageError(f"{self}: period, window and use must be above 0, cold_start and keep at least 0")
        if not 1 <= self.least <= self.most:
            raise UsageError(f"scaling between {self.least} and {self.most} workers: at least 1, and least <= most")


class StageScaler:
    """Decides for one stage, from the count of requests so far."""

    def __init__(self, scaling: Scaling, throughput: float) -> None:
        """`throughput`: requests a second of one worker with full batches."""
        self._scaling = scaling
        self._throughput = throughput
        self._counts: deque[tuple[float, int]] = deque([(0.0, 0)])
        self._wanted: deque[tuple[float, int]] = deque()

    def decide(self, now: float, requests: int) -> int:
        """Say how many workers the stage is to have, given the requests sent so far. Called once a period."""
        scaling = self._scaling
        counts = self._counts
        counts.append((now, requests))
        while len(counts) > 2 and counts[1][0] <= now - scaling.window:  # noqa: PLR2004  # two make a rate
            counts.popleft()
        since, before = counts[0]
        rate = (requests - before) / (now - since)
        needed = ceil(rate / (scaling.use * self._throughput) - 1e-9)
        wanted = self._wanted
        wanted.append((now, min(max(needed, scaling.least), scaling.most)))
        while wanted[0][0] < now - scaling.keep:
            wanted.popleft()
        return max(count for _, count in wanted)
