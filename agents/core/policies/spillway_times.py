"""How much longer a stage takes a request than a batch of one would: what `spillway` adds up over the later stages.

PARD adds up d of full batches, and of the batch waits a quantile. But a stage behind the slowest one never runs full
batches, and one that is full has the longest waits: both depend on the same thing. So one figure is observed of every
request, its *delay* at the stage: t_e - t_b, and by how much its batch took longer than a batch of one. Eq. 3 then has
the batches of one for sum d_i, and for w_k a quantile of the summed delays. How queries are spread over the workers,
how full batches become and how they come in clumps is all in what was observed, and nothing of it has to be known.

The size of a batch is found without asking anybody: the requests that are let in for the same t_e run together.
Seconds throughout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents.core.estimates.outlook import Later, Outlook

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from agents.core.policy import StageFacts, StageView


class Forming:
    """The requests of the batches that form, by t_e, until these start and their size is known."""

    __slots__ = ("_batches", "_longer", "_most", "scale")

    def __init__(self, facts: StageFacts, instances: int) -> None:
        """`instances`: how many batches can form at a time."""
        self.scale = 1.0  # durations as measured, over those profiled
        alone = facts.duration(1)
        self._longer = [facts.duration(max(1, size)) - alone for size in range(facts.batch + 1)]
        self._most = 2 * instances
        self._batches: dict[float, list[float]] = {}

    def enter(self, now: float, starts: float) -> list[float]:
        """Let a request in at t_b = `now`; give the delays that are known by that."""
        entered = self._batches.get(starts)
        if entered is not None:
            entered.append(now)
            return []
        if starts <= now:
            return [0.0]  # an idle instance runs it alone, at once
        delays = self.started(now) if len(self._batches) >= self._most else []
        if len(self._batches) >= self._most:  # the expected ends keep moving: nothing can be learned
            self._batches.clear()
        self._batches[starts] = [now]
        return delays

    def started(self, now: float) -> list[float]:
        """Give the delays of the requests whose batches have started."""
        delays: list[float] = []
        largest = len(self._longer) - 1
        for starts in [starts for starts in self._batches if starts <= now]:
            entered = self._batches.pop(starts)
            longer = self.scale * self._longer[min(len(entered), largest)]
            delays += [starts - each + longer for each in entered]
        return delays


class Delays(Outlook):
    """An outlook in which d is that of a batch of one, and the waits are delays."""

    __slots__ = ("_expected",)

    def __init__(self, view: StageView, share: float, draws: int) -> None:
        super().__init__(view, share, draws)
        self._expected = {stage: expected(view, stage, draws) for stage in view.facts}

    def _along(self, path: tuple[str, ...]) -> Later:
        queueing = sum(self.queueing(stage) for stage in path)
        alone = sum(self._alone(stage) for stage in path)
        return Later(queueing, alone, self._waiting(path), path, self.transfers(path))

    def _alone(self, stage: str) -> float:
        """Seconds of a batch of one; where there is no profile, of any batch."""
        facts = self._facts.get(stage)
        full = facts.duration(facts.batch) if facts is not None else 0.0
        return self.duration(stage) * (facts.duration(1) / full if facts is not None and full > 0 else 1.0)

    def _drawn_waits(self, stage: str) -> NDArray[np.float64] | None:
        """Give draws of a stage's delays; for a silent one of those expected."""
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
