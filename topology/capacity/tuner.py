"""How many workers each stage is to have as the load goes (InferLine, section 4.5): up at once, down with patience.

A plan was made for a sample of the traffic, whose envelope it has. The tuner counts the arrivals and compares the
newest window of each length with the sample's fullest. Where one is above, the plan is too small. Two forms say by how
much:

* `paper`, as the thesis has it: k_m = ceil(r s_m / (mu_m rho_m)) with r the largest live rate above the sample's, and
  rho_m = lambda s_m / (k_m mu_m) of the plan (the thesis prints it without s_m). Down: r is the most of the last 30 s
  in windows of 5 s, and the least rho of the plan stands for each stage's. The rate of a short window is set against
  the mean rate here, so a burst a few percent above the sample's orders for all of the burst.
* `ratio`: k_m = planned k_m x the largest r_i / sample's r_i over the windows, `NOISE` queries aside; up where that is
  more than `BAND` above what there is. A window of `LASTING` seconds or more that is so far above shows another rate,
  no burst, if it is also further above the sample's mean than `SURE` times the sample's fullest is. Then k_m = planned
  k_m x r_i / lambda, and what piles up while workers load (`spillway.topology.capacity.backlog`) is to be worked off in
  `DRAIN` of that time. Down: by the largest ratio of the last 30 s in windows of up to 5 s, over 1 - `SLACK`; to the
  plan where it is at most 1.

`ratio` is the default: docs/capacity.md says why. The largest of N fluctuations grows like log N where their tail is
exponential, or slower. So 1.5 times the largest of a sample of some minutes comes in hours of like traffic, if at all.

Nothing goes down within 15 s after a change, nor before the last 30 s are known without a gap: no data is not no load,
and before the first query comes to a plan that was just served there is no data.
Sizes are orders: a worker that dies is replaced by its front, and never ordered again. Times are in seconds of a clock
that does not go back, rates in queries a second.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from spillway.topology.capacity.backlog import Backlog
from spillway.topology.capacity.envelope import LONGEST

if TYPE_CHECKING:
    from collections.abc import Mapping

Form = Literal["paper", "ratio"]
SETTLE: Final = 15.0  # after a change, before anything goes down
RECENT: Final = 30.0  # what going down looks at
DOWN_WINDOW: Final = 5.0
BAND: Final = 0.1
LASTING: Final = 0.3
SURE: Final = 1.5
DRAIN: Final = 0.25
SLACK: Final = 0.25
NOISE: Final = 2.0  # so many queries more than the sample's in a window say nothing
GAP: Final = 2.0  # between two counts: longer, and what was between is not known
_STEP: Final = 0.5  # between two windows of `DOWN_WINDOW`, and two looks at them
_EXACT: Final = 1e-9  # sums of floats


@dataclass(frozen=True, slots=True)
class Planned:
    """What the plan says of a stage: its workers, what one of them can do, and its share of the queries."""

    workers: int
    throughput: float  # mu: queries a second of one worker
    share: float = 1.0  # s: of the pipeline's queries
    hardware: str = ""
    load: float = 0.0  # seconds until a new worker serves


@dataclass(frozen=True, slots=True)
class Basis:
    """What a tuner needs of a plan."""

    rate: float  # lambda: the sample's mean
    envelope: Mapping[float, int]  # by length of a window, rising: the most queries of the sample in one
    stages: Mapping[str, Planned]
    limits: Mapping[str, int] = field(default_factory=dict)  # by hardware, the workers that there can be

    def rho(self, stage: str) -> float:
        """The max-provisioning ratio of a stage."""
        of = self.stages[stage]
        return self.rate * of.share / (of.workers * of.throughput)

    def fullest(self, length: float) -> float:
        """The most queries of the sample in windows of any length: on a line between two lengths of the envelope."""
        lengths = list(self.envelope)
        right = min(max(bisect_left(lengths, length), 1), len(lengths) - 1)
        short, long = lengths[max(right - 1, 0)], lengths[right]
        low, high = self.envelope[short], self.envelope[long]
        if not short < length < long:
            nearest = short if length <= short else long
            return self.envelope[nearest] * length / nearest
        return low + (high - low) * (length - short) / (long - short)


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
        return (self.count - NOISE) / max(self.most, 1.0)

    @property
    def text(self) -> str:
        return (
            f"{self.rate:.4g}/s in {self.length:.3g} s; the plan's sample has at most {self.most / self.length:.4g}/s"
        )


@dataclass(slots=True)
class _Stage:
    wanted: int
    backlog: Backlog
    changed: float = -math.inf
    short: bool = False  # it needs more than there can be


class Tuner:
    """Says what to order. Tell it of every count (`count`) and of the sizes that stand (`stands`), then ask."""

    def __init__(self, basis: Basis, form: Form = "ratio", *, fresh: bool = False) -> None:
        """`fresh`: the sizes are the plan's own, so until a query comes nothing is known of the load."""
        self.basis, self.form = basis, form
        self._fresh = fresh
        self._before_first: float | None = None
        self.excess = 0.0  # the largest live rate by the sample's, now
        self._arrivals = Arrivals()
        self._stages: dict[str, _Stage] = {}
        self._counted = -math.inf
        self._looked = -math.inf  # for going down
        self._bursts: deque[tuple[float, float]] = deque()  # the largest ratio of short windows, over `RECENT`
        self._said: list[str] = []

    @property
    def short(self) -> frozenset[str]:
        """The stages that need more workers than there can be."""
        return frozenset(name for name, stage in self._stages.items() if stage.short)

    def stands(self, now: float, stage: str, count: int) -> None:
        """A stage's size by the table, of a stage that is this tuner's to change."""
        of = self.basis.stages[stage]
        known = self._stages.get(stage)
        if known is None:
            known = self._stages[stage] = _Stage(count, Backlog(count, of.throughput, of.load))
        if known.wanted != count:
            known.backlog.resize(now, count - known.wanted)
            known.wanted, known.changed = count, now

    def count(self, now: float, total: float) -> None:
        """So many queries have come until now."""
        if self._fresh and self._before_first in {None, total}:
            self._before_first = total
            return
        self._fresh = False
        before, self._counted = self._counted, now
        self._arrivals.count(now, total)
        for name, stage in self._stages.items():
            if not self._arrivals.known(now, now - before):
                stage.backlog.forget()
                continue
            queries = self._arrivals.between(before, now)
            stage.backlog.passed(before, now, queries * self.basis.stages[name].share)

    def orders(self, now: float) -> dict[str, Order]:
        """What to write, by stage; the same again until it stands. Nothing where nothing is known."""
        live = [
            _Live(length, self._arrivals.between(now - length, now), most)
            for length, most in self.basis.envelope.items()
            if self._arrivals.known(now, length)
        ]
        self.excess = max((each.ratio for each in live), default=0.0)
        self._bursts.append((now, max((each.ratio for each in live if each.length <= DOWN_WINDOW), default=0.0)))
        while self._bursts[0][0] < now - RECENT:
            self._bursts.popleft()
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
            worst = self._worst(live, below=stage.wanted < self.basis.stages[name].workers)
            needed = self._needed(now, name, worst) if worst is not None else 0.0
            dead = stage.wanted * (1.0 if self.form == "paper" else 1.0 + BAND)
            count = self._bounded(name, _ceil(needed), found)
            if worst is not None and needed > dead + _EXACT and count > stage.wanted:
                found[name] = Order(count, worst.text)
        return found

    def _worst(self, live: list[_Live], *, below: bool) -> _Live | None:
        """The window to size for. A stage that has less than the plan goes back up though the sample had as much."""
        if self.form == "ratio":
            return max((each for each in live if below or each.ratio > 1.0), key=self._growth, default=None)
        excess = [each for each in live if each.count > each.most]
        if not excess and below:
            excess = [each for each in live if each.length >= DOWN_WINDOW][:1]
        return max(excess, key=lambda each: each.rate, default=None)

    def _needed(self, now: float, name: str, worst: _Live) -> float:
        of = self.basis.stages[name]
        if self.form == "paper":
            return worst.rate * of.share / (of.throughput * self.basis.rho(name))
        growth = self._growth(worst)
        if not of.load or not self._is_another_rate(worst):
            return of.workers * growth
        rate = growth * self.basis.rate * of.share
        waiting = self._stages[name].backlog.when_loaded(now, rate)
        within = max(DRAIN * of.load, min(self.basis.envelope))
        return max(of.workers * growth, (rate + waiting / within) / of.throughput)

    def _growth(self, window: _Live) -> float:
        """By how much the load has grown since the sample, as a window shows it."""
        if self._is_another_rate(window):
            return max(window.ratio, window.rate / self.basis.rate)
        return window.ratio

    def _is_another_rate(self, window: _Live) -> bool:
        """Whether no burst of traffic like the sample's has so many queries."""
        if window.length < LASTING or window.ratio <= 1.0 + BAND:
            return False
        mean = self.basis.rate * window.length
        return window.count - mean > SURE * (window.most - mean)

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
            else of.workers
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
        ends = (now - n * _STEP for n in range(int((RECENT - DOWN_WINDOW) / _STEP) + 1))
        count = max(self._arrivals.between(end - DOWN_WINDOW, end) for end in ends)
        why = f"at most {count / DOWN_WINDOW:.4g}/s in {DOWN_WINDOW:g} s of the last {RECENT:g} s"
        found = {}
        for name, stage in self._stages.items():
            enough = max(1, _ceil(self._enough(name, count)))
            if enough < stage.wanted:
                found[name] = Order(enough, why)
        return found

    def _enough(self, name: str, count: float) -> float:
        of = self.basis.stages[name]
        if self.form == "paper":
            least = min(map(self.basis.rho, self.basis.stages))
            return count / DOWN_WINDOW * of.share / (of.throughput * least)
        ratio = max(count / self.basis.fullest(DOWN_WINDOW), *(burst for _, burst in self._bursts))
        return of.workers * (1.0 if 1.0 - SLACK <= ratio <= 1.0 else ratio / (1.0 - SLACK))


def _ceil(needed: float) -> int:
    return math.ceil(needed - _EXACT)
