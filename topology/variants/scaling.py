"""How many workers of which variants a load takes: INFaaS' greedy heuristic (section 4.2.2).

Both this and the integer program that it stands for (`benchmarks.infaas.program`) minimize, over changes delta of the
workers,

    Cost(delta) = C (delta + lambda T_load max(delta, 0))

subject to: what the workers can do is at least the load x slack; what is loaded anew keeps the SLO; there is room for
all. The paper prints `L + slack`, and says and tunes a ratio, 1.05: so here. Candidates are the variants of one
application and architecture. What it leaves open is settled so:

* Up: the cheapest of replicating a running variant; or, of those with a higher rate than the slowest running one (any,
  where none runs), so many workers beside, or in place of, what runs. In place of costs less by what ends; what runs
  goes on until what replaces it is ready, and leaves by scaling down. So an upgrade that is cut short leaves a stage
  that serves as before. Equal costs: fewer workers, then the name.
* Ours, beside these: as many whole workers of one variant as the load fills and the cheapest other for the rest, in
  place of none, of one or of all that run. By one variant alone, as published, a load that is a little more than its
  workers can do costs up to 1.7 times the program's.
* Down: the change that saves most: fewer workers of one variant, or a cheaper variant in place of one or of all. It is
  carried out when it was there for T_v seconds, the loading time of the variant that it ends. Only workers that are
  ready count, as those that load may never come.
* Where there is no room for the cheapest, the next is taken. Where there is for none, as many as fit of what adds
  most, and the cheapest is `short`: whoever has hosts adds one.

As published, Q is what a worker can do at its peak, so one that is busy all of the time meets the load, and its
queries wait without end. A rule of ours is the default (`in_time`): Q is the most that a worker takes of Poisson
arrivals with at most a share `late` of them waiting longer than the SLO leaves, w = S - T_inf. With batches of d
seconds that share is at most exp(-eta w / d) where rho = eta / (exp(eta) - 1) (Kingman's bound), so eta = d ln(1 /
late) / w. It is also at most rho, the share that finds the worker busy, so rho is `late` at least. The bound is for
one worker; several do more.

Rates are queries a second, costs a second's, times seconds.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from spillway.topology.variants.states import SLACK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from spillway.topology.variants.variant import Variant

LAMBDA: Final = 0.1  # 1/s; the paper names no value, so this is ours
LATE: Final = 0.05
_EXACT: Final = 1e-9
_STEEP: Final = 100.0
_LEAST: Final = 1e-3  # queries a second: what is asked for at all keeps one worker


class Weights(NamedTuple):
    """What is tuned of the cost and its constraints."""

    slack: float = SLACK
    unpredictability: float = LAMBDA
    """lambda, in 1/s: large where loads are spiky."""
    late: float | None = LATE
    """The share of queries that may wait longer than the SLO leaves; None: a worker can do its peak, as published."""


PUBLISHED: Final = Weights(late=None)


class Candidate(NamedTuple):
    """A variant that may serve a load, and its workers."""

    variant: Variant
    rate: float  # Q: of one worker
    latency: float  # T_inf
    ordered: int = 0  # N: workers that serve or are to
    ready: int = 0
    usable: bool = True  # more may be loaded

    @property
    def name(self) -> str:
        return self.variant.name

    def cost(self, delta: int, weights: Weights) -> float:
        """Cost(delta) of the paper."""
        return self.variant.price * (delta + weights.unpredictability * self.variant.load * max(delta, 0))


class Action(NamedTuple):
    """Changes of the workers, by variant, and what they cost."""

    deltas: Mapping[str, int]
    cost: float
    why: str
    victim: str | None = None  # of scaling down: what ends, now or when its replacement is ready

    @property
    def workers(self) -> int:
        return sum(abs(delta) for delta in self.deltas.values())


def candidates_of(variants: Sequence[Variant], running: Mapping[str, int] | None = None) -> list[Candidate]:
    """The variants by their peaks, with so many workers, all of them ready."""
    counts = running or {}
    return [
        Candidate(each, each.rate, each.latency, counts.get(each.name, 0), counts.get(each.name, 0))
        for each in variants
    ]


def needed(load: float, weights: Weights) -> float:
    """What the workers must be able to do, for a load that is not nothing."""
    return max(load * weights.slack, _LEAST)


def in_time(variant: Variant, slo: float | None, weights: Weights, slower: float = 1.0) -> float:
    """Q: queries a second that one worker takes; `slower`: times its profile that its batches take."""
    peak, batch = variant.rate / slower, variant.duration(variant.batch) * slower
    if slo is None or weights.late is None:
        return peak
    left = max(_EXACT, slo - variant.overhead - batch)
    eta = min(_STEEP, batch * math.log(1 / weights.late) / left)
    return peak * max(weights.late, eta / math.expm1(eta))


def keeps(candidate: Candidate, slo: float | None) -> bool:
    """Whether a variant keeps the SLO."""
    return slo is None or candidate.latency <= slo + _EXACT


def _count(rate: float, candidate: Candidate) -> int:
    return max(0, math.ceil(rate / candidate.rate - _EXACT))


# Up --------------------------------------------------------------------------------------------------------------


class Up(NamedTuple):
    """What is to be done where the load is more than the workers can do."""

    action: Action | None
    short: Variant | None = None
    """What there is no room for, and would be cheapest."""


def scale_up(
    candidates: Sequence[Candidate], load: float, slo: float | None, weights: Weights, fits: Callable[[Variant], int]
) -> Up:
    """The cheapest way to serve a load; nothing where the workers can already. `fits`: how many more there is room for.

    Running workers that do not keep the SLO do not count.
    """
    serving = [each for each in candidates if keeps(each, slo)]
    can = sum(each.rate * each.ordered for each in serving)
    if can >= needed(load, weights) - _EXACT:
        return Up(None)
    able = [each for each in serving if each.usable]
    found = [*_ups(able, serving, load, weights), *(_mixed(able, serving, load, weights) if weights.late else ())]
    ways = sorted(found, key=lambda way: (way.cost, way.workers, sorted(way.deltas)))
    if not ways:
        return Up(None)
    by_name = {each.name: each for each in able}

    def room(way: Action) -> bool:
        taken: defaultdict[str, float] = defaultdict(float)  # of what is left of each kind of hardware
        for name, delta in way.deltas.items():
            taken[by_name[name].variant.hardware] += delta / max(_EXACT, fits(by_name[name].variant))
        return all(share <= 1 + _EXACT for share in taken.values())

    fitting = next((way for way in ways if room(way)), None)
    if fitting is not None:
        return Up(fitting)
    part = max(able, key=lambda each: (min(fits(each.variant), _count(load, each)) * each.rate, -each.variant.price))
    most = min(fits(part.variant), _count(needed(load, weights) - can, part))
    short = by_name[next(iter(ways[0].deltas))].variant
    if not most:
        return Up(None, short)
    why = f"there is room for only {most}, but {load:.4g}/s come where {can:.4g}/s can be served"
    return Up(Action({part.name: most}, part.cost(most, weights), why), short)


def _ups(able: Sequence[Candidate], serving: Sequence[Candidate], load: float, weights: Weights) -> Iterator[Action]:
    can = sum(each.rate * each.ordered for each in serving)
    goal = needed(load, weights)
    running = [each for each in serving if each.ordered]
    slowest = min((each.rate for each in running), default=0.0)
    for each in able:
        more = _count(goal - can, each)
        if each.ordered or each.rate > slowest:
            what = "replicated" if each.ordered else "loaded"
            why = f"{load:.4g}/s come where {can:.4g}/s can be served: {each.name} is {what}"
            yield Action({each.name: more}, each.cost(more, weights), why)
        if running and each.rate > slowest:
            whole = _count(goal, each) - each.ordered
            ended = sum(other.cost(-other.ordered, weights) for other in running if other.name != each.name)
            if whole > 0 and ended < 0:
                why = f"{load:.4g}/s come where {can:.4g}/s can be served: {each.name} takes the place of what runs"
                yield Action({each.name: whole}, each.cost(whole, weights) + ended, why)


def _mixed(able: Sequence[Candidate], serving: Sequence[Candidate], load: float, weights: Weights) -> Iterator[Action]:
    """Workers of one variant, and the cheapest other for the rest, in place of none, one or all that run."""
    goal, running = needed(load, weights), [each for each in serving if each.ordered]
    for ended in [[], *([each] for each in running), running]:
        kept = {each.name: each.ordered for each in running if each not in ended}
        gap = goal - sum(each.rate * kept.get(each.name, 0) for each in running)
        for each in able if gap > 0 else ():
            whole = math.floor(gap / each.rate + _EXACT)
            rest = gap - whole * each.rate
            other = min(able, key=lambda one: (one.cost(_count(rest, one), weights), one.name))
            target = Counter(kept) + Counter({each.name: whole}) + Counter({other.name: _count(rest, other)})
            changes = {one.name: (one, target[one.name] - one.ordered) for one in serving}
            deltas = {name: delta for name, (_, delta) in changes.items() if delta > 0}
            if deltas:
                cost = sum(one.cost(delta, weights) for one, delta in changes.values())
                why = f"{load:.4g}/s take " + ", ".join(f"{count} {name}" for name, count in target.items())
                yield Action(deltas, cost, why)


# Down ------------------------------------------------------------------------------------------------------------


def scale_down(
    candidates: Sequence[Candidate], load: float, slo: float | None, weights: Weights, fits: Callable[[Variant], int]
) -> Action | None:
    """The change that saves most, if one does. One that loads something ends nothing yet: what ends waits for it."""
    ways = [*_fewer(candidates, load, slo, weights), *_cheaper(candidates, load, slo, weights, fits)]
    best = min(ways, key=lambda way: (way.cost, way.workers, sorted(way.deltas)), default=None)
    return best if best is not None and best.cost < -_EXACT else None


def _fewer(candidates: Sequence[Candidate], load: float, slo: float | None, weights: Weights) -> Iterator[Action]:
    goal = needed(load, weights)
    spare = sum(each.rate * each.ready for each in candidates if keeps(each, slo)) - goal
    for each in candidates:
        if each.ordered > each.ready or spare < 0:
            continue  # what loads was ordered for a reason
        most = min(each.ready, math.floor(spare / each.rate + _EXACT)) if keeps(each, slo) else each.ready
        if most > 0:
            why = f"{load:.4g}/s can be served without {most} of {each.name}"
            yield Action({each.name: -most}, each.cost(-most, weights), why, each.name)


def _cheaper(
    candidates: Sequence[Candidate], load: float, slo: float | None, weights: Weights, fits: Callable[[Variant], int]
) -> Iterator[Action]:
    serving = [each for each in candidates if keeps(each, slo)]
    running = [each for each in serving if each.ready]
    if any(each.ordered > each.ready for each in serving):
        return  # one change after the other
    can, goal = sum(each.rate * each.ready for each in running), needed(load, weights)
    for each in serving:
        if not each.usable:
            continue
        for old in running:
            if old.name == each.name:
                continue
            more = _count(goal - (can - old.rate * old.ready), each)
            cost = each.cost(more, weights) + old.cost(-old.ready, weights)
            if more and cost < 0 and fits(each.variant) >= more:
                why = f"{load:.4g}/s are cheaper with {more} more of {each.name} than with {old.ready} of {old.name}"
                yield Action({each.name: more}, cost, why, old.name)
        others = [old for old in running if old.name != each.name]
        whole = _count(goal, each) - each.ready
        cost = each.cost(whole, weights) + sum(old.cost(-old.ready, weights) for old in others)
        if whole > 0 and len(others) > 1 and cost < 0 and fits(each.variant) >= whole:
            victim = max(others, key=lambda old: (old.variant.load, old.name)).name
            yield Action({each.name: whole}, cost, f"{load:.4g}/s are cheaper with {each.name} alone", victim)


@dataclass(slots=True)
class Patience:
    """Scaling down waits: one group's change is due when what it ends could have gone for T_v seconds on end."""

    victim: str | None = None
    since: float = 0.0

    def due(self, now: float, victim: str | None, loading: float) -> bool:
        if victim != self.victim:
            self.victim, self.since = victim, now
        return victim is not None and now - self.since >= loading - _EXACT
