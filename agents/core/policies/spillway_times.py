"""How much longer a stage takes a request than a batch of one would: what `spillway` adds up over the later stages.

PARD adds up d of full batches, and of the batch waits a quantile. But a stage behind the slowest one never runs full
batches, and one that is full has the longest waits: both depend on the same thing. So one figure is observed of every
request, its *delay* at the stage: t_e - t_b, and by how much its batch took longer than a batch of one. Eq. 3 then has
the batches of one for sum d_i, and for w_k a quantile of the summed delays. How queries are spread over the workers,
how full batches become and how they come in clumps is all in what was observed, and nothing of it has to be known.

One set of draws serves all quantiles. It is renewed with every synchronisation: most bursts are over in a few seconds.
Seconds throughout.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from agents.core.estimates.outlook import ANY, Later, Outlook

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from agents.core.policy import StageFacts, StageView
    from agents.core.request import Path


class Delays(Outlook):
    """An outlook in which d is that of a batch of one, and the waits are delays, of any quantile."""

    __slots__ = ("_expected", "_levels", "_sums")

    redrawn: ClassVar[float] = 0.0

    def __init__(self, view: StageView, share: float, draws: int) -> None:
        super().__init__(view, share, draws)
        self._expected = {stage: expected(view, stage, draws) for stage in view.facts}
        self._levels: dict[tuple[str, tuple[tuple[str, tuple[str, ...]], ...], float], Later] = {}
        self._sums: dict[tuple[str, ...], NDArray[np.float64]] = {}

    def later(self, stage: str, choices: Path = ANY) -> Later:
        """Give the terms for the stages behind `stage`, along the worst path that `choices` leave open."""
        return self.covering(self._quantile, stage, choices)

    def covering(self, share: float, stage: str, choices: Path = ANY) -> Later:
        key = (stage, tuple(sorted(choices.items())) if choices else (), share)
        found = self._levels.get(key)
        if found is None:
            paths = self.paths(stage, choices)
            found = max((self._reckoned(path, share) for path in paths), key=lambda later: later.total)
            self._levels[key] = found
        return found

    def _reckoned(self, path: tuple[str, ...], share: float) -> Later:
        queueing = sum(self.queueing(stage) for stage in path)
        alone = sum(self._alone(stage) for stage in path)
        return Later(queueing, alone, self._delay(path, share), path)

    def _delay(self, path: tuple[str, ...], share: float) -> float:
        sums = self._sums.get(path)
        if sums is None:
            sums = self._sums[path] = np.sort(self._summed(path))
        return float(sums[max(0, ceil(share * len(sums)) - 1)]) if len(sums) else 0.0

    def _forget(self) -> None:
        super()._forget()
        self._levels.clear()
        self._sums.clear()

    def _alone(self, stage: str) -> float:
        facts = self._facts.get(stage)
        full = facts.duration(facts.batch) if facts is not None else 0.0
        return self.duration(stage) * (facts.duration(1) / full if facts is not None and full > 0 else 1.0)

    def _drawn_waits(self, stage: str) -> NDArray[np.float64] | None:
        values = self._expected.get(stage)
        if stage not in self._draws and values is not None and self._anything and not self._states.get(stage):
            self._draws[stage] = self._sampler.draw(self._places.get(stage, len(self._places)), values)
        return super()._drawn_waits(stage)


def expected(view: StageView, stage: str, count: int) -> NDArray[np.float64]:
    """Give delays to reckon with before any were seen: waits spread over a batch, of the size that will settle.

    That is the batch that forms while one as large runs, if as much comes as the stages before it let through.
    """
    facts = view.facts[stage]
    taken = facts.duration(settled(facts, _let_through(view, stage)))
    return np.asarray((np.arange(count) + 0.5) * (taken / count) + taken - facts.duration(1), np.float64)


def settled(facts: StageFacts, rate: float) -> int:
    """Give the size of batch for which fewer than that come while it runs, of `rate` requests a second."""
    each = rate / max(1, facts.workers)
    return next((n for n in range(1, facts.batch) if n > each * facts.duration(n) + 1e-9), facts.batch)


def _let_through(view: StageView, stage: str) -> float:
    """Requests a second that the slowest of the stages up to this one serves in full batches."""
    before = {stage}
    while more := {name for name in _senders(view.successors, before) if name in view.facts} - before:
        before |= more
    return min(_speed(view.facts[name]) for name in before)


def _senders(successors: Mapping[str, tuple[str, ...]], stages: Iterable[str]) -> set[str]:
    return {name for name, targets in successors.items() if not set(targets).isdisjoint(stages)}


def _speed(facts: StageFacts) -> float:
    full = facts.duration(facts.batch)
    return facts.workers * facts.batch / full if full > 0 else float("inf")
