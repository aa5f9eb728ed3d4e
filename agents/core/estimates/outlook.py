"""What is still before a request when it leaves a stage: L_sub of PARD's eq. 3, from what all stages last said.

For every path from the stage to an end: the sum of q_i, the sum of d_i, and w, the quantile of the sum of the batch
waits and hops along the path, from draws summed over its stages. The worst path counts (section 4.2). Of a pipeline
with conditional edges only the paths count that may still be taken: `choices` says which successors are known, or
foretold, to be chosen. A choice of a stage before this one excludes nothing here, as a stage chooses among its own
successors.

What the paper leaves out, and Kafka does not allow to: a message takes its time from stage to stage, and through the
gate at the end. Every stage, and the gate, tells samples of these hops. They vary as the batch waits do, so they are
one sum with them: the sum of a high quantile of each would be far beyond what a request meets. Where nobody tells of
hops, as in a simulation without them, eq. 3 is the paper's.

A stage that falls silent is taken for idle: q = 0, d as profiled, batch waits spread over [0, d]. As long as no stage
has said anything, q = w = 0. Seconds throughout.

One outlook serves all queues of a process, or of a simulation: it works out each stage once a synchronisation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from spillway.lineage.errors import UsageError
from spillway.lineage.metric_names import GATE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from spillway.agents.core.policy import StageState, StageView
    from spillway.agents.core.request import Path


# The distribution of a stage's batch waits, and draws from it (PARD, section 4.2, batch wait estimation).
#
# Each replica gives its recent waits, or (over the wire) quantiles of them, n of them at (i + 1/2) / n. A stage's pool
# joins its replicas', each for as many waits as it stands for.

NONE: NDArray[np.float64] = np.zeros(0)


def pool(states: Sequence[StageState], most: int) -> NDArray[np.float64]:
    """Join the replicas' waits into at most about `most` values, equally likely; empty where none were seen."""
    heard = [state for state in states if len(state.waits) and state.waits_seen > 0]
    if not heard:
        return NONE
    if all(len(state.waits) == state.waits_seen for state in heard):
        return np.concatenate([np.array(state.waits, np.float64) for state in heard])
    seen = sum(state.waits_seen for state in heard)
    size = min(most, seen)
    return np.concatenate([_spread(state.waits, max(1, round(size * state.waits_seen / seen))) for state in heard])


def _spread(quantiles: Sequence[float], count: int) -> NDArray[np.float64]:
    """Give `count` values of which each quantile makes up the share that it stands for.

    Not linear between two of them: where the waits leap (all at once, or not at all) that would err by twice as much.
    """
    known = np.sort(np.array(quantiles, np.float64))
    return known[((np.arange(count) + 0.5) * (len(known) / count)).astype(np.intp)]


def uniform(duration: float, count: int) -> NDArray[np.float64]:
    """Give what stands in for a stage that says nothing: waits spread evenly over [0, d] (the paper's Figure 3b)."""
    return np.asarray((np.arange(count) + 0.5) * (duration / count), np.float64)


def quantile(values: NDArray[np.float64], share: float) -> float:
    """Give F^-1(share): the smallest of the values that at least this share of them does not exceed."""
    place = max(0, int(np.ceil(share * len(values))) - 1)
    return float(np.partition(values, place)[place])


class Sampler:
    """Draws from pools, a fixed set of uniform numbers for each stage.

    With the same numbers at every synchronisation an estimate changes only when the waits have changed.
    """

    __slots__ = ("_draws", "_numbers", "_seed")

    def __init__(self, draws: int, seed: int) -> None:
        self._draws = draws
        self._seed = seed
        self._numbers: list[NDArray[np.float64]] = []  # by the stage's place in the pipeline

    def draw(self, place: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Draw from the pool of the stage at `place`, independently of every other stage's."""
        while len(self._numbers) <= place:
            self._numbers.append(np.random.default_rng((self._seed, len(self._numbers))).random(self._draws))
        return values[(self._numbers[place] * len(values)).astype(np.intp)]


ANY: Path = {}  # nothing is known of the choices
MOST_PATHS = 1_000


@dataclass(frozen=True, slots=True)
class Later:
    """The terms of eq. 3 for the stages behind one, along the worst path."""

    queueing: float = 0.0  # the sum of q_i
    execution: float = 0.0  # the sum of d_i
    waits: float = 0.0  # w_k, with the hops into each of them and through the gate
    path: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        return self.queueing + self.execution + self.waits


class Outlook:
    """What all stages last said, merged; see the module."""

    redrawn: ClassVar[float] = 1.0 - 1e-6  # seconds after which waits are drawn anew

    def __init__(self, view: StageView, share: float, draws: int, *, recent: bool = False) -> None:
        """`recent`: d is that of the batches that lately ended, not of a planned one."""
        self._recent = recent
        self._facts = view.facts
        self._successors = view.successors
        self._places = {name: place for place, name in enumerate(view.successors)}
        self._quantile = share
        self._size = draws
        self._sampler = Sampler(draws, view.seed)
        self._states: Mapping[str, Sequence[StageState]] = {}
        self._heard = -1.0
        self._anything = False
        self._found: dict[tuple[str, tuple[tuple[str, tuple[str, ...]], ...], float], Later] = {}
        self.queueing, self.duration = cache(self._queueing), cache(self._duration)
        # Of the batch waits and hops: drawn anew after `redrawn`, or when a stage falls silent or speaks.
        self._drawn = float("-inf")
        self._speaking: frozenset[str] = frozenset()
        self._draws, self._hop_draws = cache(self._drawn_waits), cache(self._drawn_hops)
        self._waits, self.hops = cache(self._waiting), cache(self._hops)
        self._of_draws: list[Any] = [self._draws, self._hop_draws, self._waits, self.hops]

    def hear(self, now: float, states: Mapping[str, Sequence[StageState]]) -> None:
        """Take in the newest states; the same ones again, from another queue, change nothing."""
        if states is self._states and now == self._heard:
            return
        self._states, self._heard = states, now
        self._anything = self._anything or any(states.values())
        self._found.clear()
        self.queueing.cache_clear()
        self.duration.cache_clear()
        speaking = frozenset(stage for stage, told in states.items() if told)
        if now - self._drawn >= self.redrawn or speaking != self._speaking:
            self._drawn, self._speaking = now, speaking
            for drawn in self._of_draws:
                drawn.cache_clear()

    # One stage -------------------------------------------------------------------------------------------------

    def _queueing(self, stage: str) -> float:
        states = self._states.get(stage, ())
        weight = sum(state.entered for state in states)
        return sum(state.queueing * state.entered for state in states) / weight if weight > 0 else 0.0

    def _duration(self, stage: str) -> float:
        """Return d: seconds of a batch of the planned size, as lately measured where it was, else as profiled.

        With `recent`, the mean of the batches that ended in the last period; where none did, that of a batch of one.
        """
        states = self._states.get(stage, ())
        of = (state.recent_duration if self._recent else state.duration for state in states)
        measured = [seconds for seconds in of if seconds > 0]
        if measured:
            return sum(measured) / len(measured)
        facts = self._facts.get(stage)
        planned = 1 if self._recent else max((state.batch for state in states), default=0)
        return facts.duration(planned or facts.batch) if facts is not None else 0.0

    def _drawn_waits(self, stage: str) -> NDArray[np.float64] | None:
        """Give draws of the stage's batch waits; None for no wait at all."""
        states = self._states.get(stage, ())
        values = pool(states, self._size)
        if not states and self._anything:
            values = uniform(self.duration(stage), self._size)
        return self._sampler.draw(self._place(stage), values) if len(values) else None

    def _drawn_hops(self, stage: str) -> NDArray[np.float64] | None:
        """Give draws of the hops into a stage, or through the gate; None where nobody tells of any."""
        values = np.array([hop for state in self._states.get(stage, ()) for hop in state.hops], np.float64)
        place = len(self._places) + 1 + self._place(stage)
        return self._sampler.draw(place, values) if len(values) else None

    def _place(self, stage: str) -> int:
        return self._places.get(stage, len(self._places))

    # The stages behind one -------------------------------------------------------------------------------------

    def later(self, stage: str, choices: Path = ANY, share: float | None = None) -> Later:
        """Give the terms for the stages behind `stage`, along the worst path that `choices` leave open."""
        share = self._quantile if share is None else share
        key = (stage, tuple(sorted(choices.items())) if choices else (), share)
        found = self._found.get(key)
        if found is None:
            along = (self._along(path, share) for path in self.paths(stage, choices))
            found = self._found[key] = max(along, key=lambda later: later.total)
        return found

    def _along(self, path: tuple[str, ...], share: float) -> Later:
        queueing = sum(self.queueing(stage) for stage in path)
        execution = sum(self._execution(stage) for stage in path)
        return Later(queueing, execution, self._waits(path, share), path)

    def _execution(self, stage: str) -> float:
        return self.duration(stage)

    def _waiting(self, path: tuple[str, ...], share: float) -> float:
        total = self._summed(path)
        return quantile(total, share) if len(total) else 0.0

    def _hops(self, path: tuple[str, ...], share: float | None = None) -> float:
        """Give a quantile of the sum of the hops alone: into each stage of the path, and through the gate."""
        total = _sum(map(self._hop_draws, (*path, GATE)))
        return quantile(total, self._quantile if share is None else share) if len(total) else 0.0

    def _summed(self, path: tuple[str, ...]) -> NDArray[np.float64]:
        """Give draws of the sum of the path's batch waits and hops."""
        return _sum((*map(self._draws, path), *map(self._hop_draws, (*path, GATE))))

    def paths(self, stage: str, choices: Path = ANY) -> list[tuple[str, ...]]:
        """List the ways from behind `stage` to an end. Raises UsageError where there are too many to look at each."""
        found = []
        for path in self._walk(stage, choices):
            found.append(path)
            if len(found) > MOST_PATHS:
                raise UsageError(
                    f"stage {stage} has more than {MOST_PATHS} paths behind it, and this policy evaluates each; "
                    "choose another policy (naive or expired), or use fewer edges"
                )
        return found

    def _walk(self, stage: str, choices: Path) -> Iterator[tuple[str, ...]]:
        successors = choices.get(stage)
        if successors is None:
            successors = self._successors.get(stage, ())
        if not successors:
            yield ()
        for successor in successors:
            for rest in self._walk(successor, choices):
                yield (successor, *rest)


def _sum(draws: Iterable[NDArray[np.float64] | None]) -> NDArray[np.float64]:
    total = NONE
    for each in draws:
        if each is not None:
            total = total + each if len(total) else each
    return total
