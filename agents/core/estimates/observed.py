"""What one queue saw of its own requests and batches, and the state that it makes of it for all stages.

`delays` and `waits` take the Q = t_b - t_r and W = t_e - t_b of every request that enters a batch (PARD, eq. 2); they
are plain lists, as every request appends to them.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import TYPE_CHECKING, Final

from spillway.agents.core.estimates.window import DEFAULT, RecentMean, WorkloadVariation, guided
from spillway.agents.core.policy import Load, StageState

if TYPE_CHECKING:
    from spillway.agents.core.policy import StageView


# The recent hops of messages to one place: from the sender's timestamp into a stage's queue, or through the gate.
#
# They are told as samples, as the batch waits are, and the outlook takes a quantile of the sum along a path. What was
# slow during an outage is forgotten within `LENGTH`. That is longer than the time between two probes of a stage that
# lets nothing else in (`spillway.agents.core.policies.pard`), so that an estimate never starts from nothing there.

LENGTH: Final = 3.0  # seconds that are remembered
_MANY: Final = 1_000
_MOST: Final = 1.0  # seconds: more is a backlog after an outage, or a clock that is off, and no hop that lies ahead


class Transfer:
    """`now` is in seconds and does not decrease."""

    __slots__ = ("_hops",)

    def __init__(self) -> None:
        self._hops: deque[tuple[float, float]] = deque(maxlen=_MANY)  # when it ended, and how long it was

    def hear(self, now: float, seconds: float) -> None:
        self._hops.append((now, min(max(0.0, seconds), _MOST)))

    def samples(self, now: float) -> list[float]:
        hops = self._hops
        while hops and hops[0][0] < now - LENGTH:
            hops.popleft()
        return [seconds for _, seconds in hops]


SAMPLES = 10_000  # M: recent batch waits of a stage
_NOTHING = Load(0, 0, 0, 0, 0, 0.0, 0, 0, 0)


class Observed:
    """One queue's observations since its last report, and the windows over them."""

    __slots__ = ("_at", "_capacity", "_last", "_mean", "_next", "_ring", "_variation", "_view", "delays", "waits")

    def __init__(self, view: StageView, window: float | None = DEFAULT, samples: int = SAMPLES) -> None:
        """`window`: seconds; None chooses it by the paper's guideline. `samples`: of the whole stage."""
        self.delays: list[float] = []
        self.waits: list[float] = []
        self._view = view
        self._mean = RecentMean(DEFAULT if window is None else window)
        self._variation = WorkloadVariation() if window is None else None
        facts = view.facts.get(view.stage)
        workers = facts.workers if facts is not None else view.instances
        self._capacity = max(1, samples * view.instances // max(workers, view.instances))
        self._ring = array("d")  # the last batch waits, in any order
        self._next = 0
        self._last = _NOTHING
        self._at: float | None = None

    def report(self, now: float, load: Load, *, hbf: bool = False) -> StageState:
        span = self._view.period if self._at is None else now - self._at
        last, self._last, self._at = self._last, load, now
        arrived, batches = load.arrived - last.arrived, load.batches - last.batches
        completed = load.completed - last.completed
        self._lengthen(arrived, span)
        self._mean.close(now, sum(self.delays), len(self.delays))
        self.delays.clear()
        self._keep()
        queueing, entered = self._mean.mean(now)
        facts = self._view.facts.get(self._view.stage)
        busy, profiled = load.busy - last.busy, load.profiled - last.profiled
        return StageState(
            stage=self._view.stage,
            replica=self._view.replica,
            at=now,
            queueing=queueing,
            entered=entered,
            waits=self._ring[:],
            waits_seen=len(self._ring),
            batch=facts.batch if facts is not None else 0,
            recent_batch=completed / batches if batches else 0.0,
            duration=load.duration,
            recent_duration=busy / batches if batches else 0.0,
            arrival_rate=arrived / span if span > 0 else 0.0,
            completion_rate=completed / span if span > 0 else 0.0,
            drop_rate=min(1.0, (load.dropped - last.dropped) / arrived) if arrived else 0.0,
            backlog=load.queued + load.forming + load.running,
            hbf=hbf,
            span=span,
            utilisation=busy / (span * load.workers) if span > 0 and load.workers else 0.0,
            slower=busy / profiled if profiled > 0 else 0.0,
        )

    def _lengthen(self, arrived: int, span: float) -> None:
        if self._variation is not None:
            self._variation.see(arrived, span)
            self._mean.length = guided(self._variation.coefficient)

    def _keep(self) -> None:
        """Move the new batch waits into the ring, over the oldest ones."""
        new, ring, capacity = self.waits[-self._capacity :], self._ring, self._capacity
        self.waits.clear()
        if len(ring) < capacity:
            room = capacity - len(ring)
            ring.extend(new[:room])
            new = new[room:]
        while new:
            part = new[: capacity - self._next]
            ring[self._next : self._next + len(part)] = array("d", part)
            self._next = (self._next + len(part)) % capacity
            new = new[len(part) :]
