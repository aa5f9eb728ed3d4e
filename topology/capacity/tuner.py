"""How many workers each stage is to have as the load goes (InferLine, section 4.5): up at once, down with patience.

A plan was made for a sample of the traffic, whose envelope it has. The tuner counts the arrivals and compares the
newest window of each length with the sample's fullest. Two forms say what follows:

* `paper`, as the thesis has it: k_m = ceil(r s_m / (mu_m rho_m)) with r the largest live rate above the sample's, and
  rho_m = lambda s_m / (k_m mu_m) of the plan (the thesis prints it without s_m). Down: r is the most of the last 30 s
  in windows of 5 s, and the least rho of the plan stands for each stage's. The rate of a short window is set against
  the mean rate here, so a burst a few percent above the sample's orders for all of the burst.
* `envelope`, the default, by network calculus: a stage of capacity C keeps an envelope E waiting for E(t) / C - t at
  most, over all windows t. W is what the plan's sample waited so at the stage. k_m = the most of s_m E(t) / (t + D) of
  the newest windows, over mu_m, with D = `WAIT` x W: a plan may let its sample's worst hundredth be late, and traffic
  that stays as full as that would be late throughout. Where W < 0 the plan has workers to spare, and D = W keeps them.
  A worker that is ordered serves when it has loaded, so k_m is taken as much larger as the load has grown within the
  last load time, `SURE` standard deviations aside, twice at most. Down: to the most k_m of the last load time / `LATE`,
  once all of that is known. A rise after that makes queries late for a load time, so `LATE` of all at most.

Nothing goes down within 15 s after a change, nor before the last 30 s are known without a gap: no data is not no load,
and before the first query comes to a plan that was just served there is no data.
Sizes are orders: a worker that dies is replaced by its front, and never ordered again. Times are in seconds of a clock
that does not go back, rates in queries a second.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from spillway.topology.capacity.envelope import LONGEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.topology.capacity.plan import PlannedStage

Form = Literal["paper", "envelope"]
SETTLE: Final = 15.0  # after a change, before anything goes down
RECENT: Final = 30.0  # what going down looks at
DOWN_WINDOW: Final = 5.0
BAND: Final = 0.1  # so much more than there is orders nothing
WAIT: Final = 0.25
SURE: Final = 3.0
LATE: Final = 0.01  # of the queries: what a plan for p99 allows
GAP: Final = 2.0  # between two counts: longer, and what was between is not known
_STEP: Final = 0.5  # between two windows of `DOWN_WINDOW`, and two looks at them
_EXACT: Final = 1e-9  # sums of floats


@dataclass(frozen=True, slots=True)
class Basis:
    """What a tuner needs of a plan."""

    rate: float  # lambda: the sample's mean
    envelope: Mapping[float, int]  # by length of a window, rising: the most queries of the sample in one
    stages: Mapping[str, PlannedStage]
    limits: Mapping[str, int] = field(default_factory=dict)  # by hardware, the workers that there can be

    def rho(self, stage: str) -> float:
        """The max-provisioning ratio of a stage."""
        of = self.stages[stage]
        return self.rate * of.share / (of.count * of.throughput)

    def wait(self, stage: str) -> float:
        """Return the longest wait of the sample at a stage, served as a fluid; below 0 where workers are to spare."""
        of = self.stages[stage]
        each = of.share / (of.count * of.throughput)
        return max(count * each - length for length, count in self.envelope.items())

    def memory(self, stage: str) -> float:
        """Return the seconds that a stage must have needed less before it goes down."""
        return max(RECENT, self.stages[stage].load / LATE)


@dataclass(frozen=True, slots=True)
class Order:
    """How many workers a stage is to have from now on, and why."""

    count: int
    why: str


class Arrivals:
    """How many queries have come, as it was counted over the last minute."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._totals: list[float] = []
        self._known_since = math.inf  # without a gap

    def count(self, now: float, total: float) -> None:
        """Note that so many queries have come since some beginning. A count that falls is of another beginning."""
        if self._times and (total < self._totals[-1] or now < self._times[-1]):
            self._times, self._totals = [], []
        if not self._times or now - self._times[-1] > GAP:
            self._known_since = now
        self._times.append(now)
        self._totals.append(total)
        if self._times[len(self._times) // 2] < now - LONGEST:
            old = bisect_right(self._times, now - LONGEST) - 1
            del self._times[:old], self._totals[:old]

    def known(self, now: float, seconds: float) -> bool:
        """Whether all of the last `seconds` was counted, up to now."""
        return bool(self._times) and now - self._times[-1] <= GAP and self._known_since <= now - seconds + _EXACT

    def between(self, begin: float, end: float) -> float:
        """Queries between two times that were counted; between two counts they are taken to have come evenly."""
        return self._at(end) - self._at(begin)

    def _at(self, time: float) -> float:
        right = bisect_right(self._times, time)
        if right in {0, len(self._times)}:
            return self._totals[min(right, len(self._totals) - 1)]
        before, after = self._times[right - 1], self._times[right]
        low, high = self._totals[right - 1], self._totals[right]
        return low + (high - low) * (time - before) / (after - before)


@dataclass(frozen=True, slots=True)
class _Live:
    """The newest window of a length, beside the sample's fullest."""

    length: float
    count: float
    most: float

    @property
    def rate(self) -> float:
        return self.count / self.length

    @property
    def ratio(self) -> float:
        return self.count / max(self.most, 1)

    @property
    def text(self) -> str:
        return (
            f"{self.rate:.4g}/s in {self.length:.3g} s; the plan's sample has at most {self.most / self.length:.4g}/s"
        )


@dataclass(slots=True)
class _Stage:
    wanted: int
    changed: float = -math.inf
    short: bool = False  # it needs more than there can be
    peaks: deque[tuple[float, float]] = field(default_factory=deque)
    """When it needed how many workers, of `memory`; only what nothing later exceeds."""
    since: float = math.inf  # when these begin, without a gap


class Tuner:
    """Says what to order. Tell it of every count (`count`) and of the sizes that stand (`stands`), then ask."""

    def __init__(self, basis: Basis, form: Form = "envelope", *, fresh: bool = False) -> None:
        """`fresh`: the sizes are the plan's own, so until a query comes nothing is known of the load."""
        self.basis, self.form = basis, form
        self._fresh = fresh
        self._before_first: float | None = None
        self.excess = 0.0  # the largest live rate by the sample's, now
        self._arrivals = Arrivals()
        self._stages: dict[str, _Stage] = {}
        self._looked = -math.inf  # for going down
        most = {name: basis.wait(name) for name in basis.stages}
        self._waits = {name: WAIT * each if each > 0 else each for name, each in most.items()}
        self._said: list[str] = []

    @property
    def short(self) -> frozenset[str]:
        """The stages that need more workers than there can be."""
        return frozenset(name for name, stage in self._stages.items() if stage.short)

    def stands(self, now: float, stage: str, count: int) -> None:
        """A stage's size by the table, of a stage that is this tuner's to change."""
        known = self._stages.setdefault(stage, _Stage(count))
        if known.wanted != count:
            known.wanted, known.changed = count, now

    def count(self, now: float, total: float) -> None:
        """So many queries have come until now."""
        if self._fresh and self._before_first in {None, total}:
            self._before_first = total
            return
        self._fresh = False
        self._arrivals.count(now, total)

    def orders(self, now: float) -> dict[str, Order]:
        """What to write, by stage; the same again until it stands. Nothing where nothing is known."""
        live = [
            _Live(length, self._arrivals.between(now - length, now), most)
            for length, most in self.basis.envelope.items()
            if self._arrivals.known(now, length)
        ]
        self.excess = max((each.ratio for each in live), default=0.0)
        found = self._up(now, live)
        if not found and now - self._looked >= _STEP:
            self._looked = now
            found = self._down(now)
        return found

    def said(self) -> list[str]:
        """What a person should know, each once: stages that need more workers than there can be."""
        told, self._said = self._said, []
        return told

    # Up --------------------------------------------------------------------------------------------------------

    def _up(self, now: float, live: list[_Live]) -> dict[str, Order]:
        found: dict[str, Order] = {}
        for name, stage in self._stages.items():
            worst = self._worst(name, live)
            needed = self._needed(now, name, worst) if worst is not None else 0.0
            if self.form == "envelope":
                self._remember(now, name, needed)
            dead = stage.wanted * (1.0 if self.form == "paper" else 1.0 + BAND)
            count = self._bounded(name, _ceil(needed), found)
            if worst is not None and needed > dead + _EXACT and count > stage.wanted:
                found[name] = Order(count, worst.text)
        return found

    def _worst(self, name: str, live: list[_Live]) -> _Live | None:
        """Return the window to size for; `paper` goes back up to the plan by the shortest of `DOWN_WINDOW` or more."""
        if self.form == "envelope":
            wait = self._waits[name]
            return max(live, key=lambda each: each.count / (each.length + wait), default=None)
        excess = [each for each in live if each.count > each.most]
        if not excess and self._stages[name].wanted < self.basis.stages[name].count:
            excess = [each for each in live if each.length >= DOWN_WINDOW][:1]
        return max(excess, key=lambda each: each.rate, default=None)

    def _needed(self, now: float, name: str, worst: _Live) -> float:
        of = self.basis.stages[name]
        if self.form == "paper":
            return worst.rate * of.share / (of.throughput * self.basis.rho(name))
        rate = worst.count / (worst.length + self._waits[name])
        return self._growth(now, of.load) * rate * of.share / of.throughput

    def _growth(self, now: float, load: float) -> float:
        """Return by how much the load has surely grown from one load time to the next, 1 to 2."""
        load = min(load, LONGEST / 2)  # older arrivals are not kept
        if not load or not self._arrivals.known(now, 2 * load):
            return 1.0
        before, after = (self._arrivals.between(now - n * load, now - (n - 1) * load) for n in (2, 1))
        return min(max((after - SURE * math.sqrt(after)) / max(before, 1.0), 1.0), 2.0)

    def _remember(self, now: float, name: str, needed: float) -> None:
        stage = self._stages[name]
        peaks = stage.peaks
        if not peaks or not self._arrivals.known(now, now - peaks[-1][0]):
            peaks.clear()
            stage.since = now
        while peaks and peaks[-1][1] <= needed:
            peaks.pop()
        peaks.append((now, needed))
        while peaks[0][0] < now - self.basis.memory(name):
            peaks.popleft()

    def _bounded(self, name: str, needed: int, ordered: Mapping[str, Order]) -> int:
        """As many as the hardware has for it beside the others; says once that it is too few."""
        kind, stage = self.basis.stages[name].hardware, self._stages[name]
        most = self.basis.limits.get(kind)
        if most is None:
            return needed
        others = sum(
            ordered[other].count
            if other in ordered
            else self._stages[other].wanted
            if other in self._stages
            else of.count
            for other, of in self.basis.stages.items()
            if of.hardware == kind and other != name
        )
        left = most - others
        if needed <= left:
            stage.short = False
            return needed
        if not stage.short:
            stage.short = True
            self._said.append(
                f"{name} needs {needed} workers, and of {most} of {kind} {left} are left; queries may be late"
            )
        return left

    # Down ------------------------------------------------------------------------------------------------------

    def _down(self, now: float) -> dict[str, Order]:
        settled = all(now - stage.changed >= SETTLE for stage in self._stages.values())
        if not settled or not self._arrivals.known(now, RECENT):
            return {}
        found = {}
        for name, stage in self._stages.items():
            needed, why = self._enough(now, name)
            if needed < stage.wanted and (enough := max(1, _ceil(needed))) < stage.wanted:
                found[name] = Order(enough, why)
        return found

    def _enough(self, now: float, name: str) -> tuple[float, str]:
        of = self.basis.stages[name]
        if self.form == "envelope":
            stage, memory = self._stages[name], self.basis.memory(name)
            most = stage.peaks[0][1] if now - stage.since >= memory - _EXACT else math.inf
            return most, f"at most {most:.3g} workers were needed in the last {memory:g} s"
        ends = (now - n * _STEP for n in range(int((RECENT - DOWN_WINDOW) / _STEP) + 1))
        rate = max(self._arrivals.between(end - DOWN_WINDOW, end) for end in ends) / DOWN_WINDOW
        ratio = min(map(self.basis.rho, self.basis.stages))
        why = f"at most {rate:.4g}/s in {DOWN_WINDOW:g} s of the last {RECENT:g} s"
        return rate * of.share / (of.throughput * ratio), why


def _ceil(needed: float) -> int:
    return math.ceil(needed - _EXACT)
