"""Each rule of `spillway` is worth its place: taken out, overloads cost visibly more in a small simulation.

Drops or work, on lv with one queue per stage: five seconds at half the capacity and two at 1.4 times it, four times
over; four seconds far above it; requests that come in clumps.
"""

from dataclasses import replace

import numpy as np
import pytest

from agents.core import policies
from agents.core.policies.adaptive import HIGH
from agents.core.policies.spillway import Spillway
from agents.sim.simulation import simulate
from benchmarks.pard.applications import application, capacity_of, provision
from benchmarks.pard.cases import good_of
from producers.load import schedule

LEVELS = ([0.5] * 5 + [1.4] * 2) * 4
DEEP = [0.6] * 3 + [2.5] * 4 + [0.3] * 3


class StrictWhereNoneWaits(Spillway):
    def _renew(self):
        super()._renew()
        self._least = self._shares[self.parameters.quantile]


class LenientWhereOthersWait(Spillway):
    def _renew(self):
        super()._renew()
        self._shares = dict.fromkeys(self._shares, self._least)


class BlindToTheLine(Spillway):
    """Strict after half a second, whether or not anything would be late."""

    def _choose(self):
        self._share = self._calm


class AlwaysSure(Spillway):
    def _choose(self):
        self._share = 1.0


class QueuesOfTheLastSeconds(Spillway):
    def report(self, now, load):
        return self._seen.report(now, load)


class QueuesUnknown(Spillway):
    def report(self, now, load):
        return replace(super().report(now, load), queueing=0.0)


class FullBatches(Spillway):
    """d of full batches and, beside it, the waits."""

    def __init__(self, view, parameters):
        super().__init__(view, parameters)
        self._longer = [0.0] * len(self._longer)
        self._renew()

    def _renew(self):
        super()._renew()
        path = self._later.path
        more = sum(self._delays.duration(stage) - self._delays._alone(stage) for stage in path)
        self._shares = {share: needed + more for share, needed in self._shares.items()}


class WaitsAlone(Spillway):
    """Batches of one, and the waits."""

    def __init__(self, view, parameters):
        super().__init__(view, parameters)
        self._longer = [0.0] * len(self._longer)


class CalmTimesToo(Spillway):
    def tick(self, now, load, states):
        super().tick(now, load, states)
        self._pressed = True


class HighBudgetsFirst(Spillway):
    order = HIGH


COST_DROPS = (
    StrictWhereNoneWaits,
    LenientWhereOthersWait,
    FullBatches,
    WaitsAlone,
    HighBudgetsFirst,
)
COST_WORK = (
    LenientWhereOthersWait,
    QueuesOfTheLastSeconds,
    QueuesUnknown,
    WaitsAlone,
    CalmTimesToo,
    HighBudgetsFirst,
)


def bursts(levels):
    lv = application("lv")
    workers = provision(lv.spec, 120)
    rng = np.random.default_rng(0)
    counts = rng.poisson(capacity_of(lv.spec, workers) * np.array(levels))
    return lv, workers, schedule.from_counts(np.arange(len(levels)), counts, rng)


def clumps():
    """Twenty seconds of three quarters of the capacity, of which most come in bursts of milliseconds."""
    lv = application("lv")
    workers = provision(lv.spec, 120)
    rate = 0.75 * capacity_of(lv.spec, workers)
    return lv, workers, schedule.gamma(rate, 3.0, 20, np.random.default_rng(0))


def run(policy, monkeypatch, scene=None):
    """Drops and seconds wasted."""
    monkeypatch.setitem(policies.POLICIES, "spillway", policy)
    lv, workers, due = scene or bursts(LEVELS)
    result = simulate(lv, due, workers=workers, dispatch="shared", policy="spillway", period=0.1)
    good = good_of(result)
    return int((~good).sum()), float(result.spent[~good].sum())


@pytest.fixture(scope="module")
def whole():
    with pytest.MonkeyPatch.context() as monkeypatch:
        return run(Spillway, monkeypatch)


@pytest.mark.parametrize("mutant", COST_DROPS)
def test_without_a_rule_more_is_dropped(mutant, whole, monkeypatch):
    assert run(mutant, monkeypatch)[0] > 1.04 * whole[0]


@pytest.mark.parametrize("mutant", COST_WORK)
def test_without_a_rule_more_is_wasted(mutant, whole, monkeypatch):
    assert run(mutant, monkeypatch)[1] > 1.2 * whole[1]


def test_blind_to_the_end_of_the_line_a_deep_overload_wastes_more(monkeypatch):
    dropped, wasted = run(Spillway, monkeypatch, bursts(DEEP))
    blind = run(BlindToTheLine, monkeypatch, bursts(DEEP))
    assert blind[0] > dropped
    assert blind[1] > 1.2 * wasted


def test_strict_at_once_more_is_dropped_of_what_comes_in_clumps(monkeypatch):
    assert run(AlwaysSure, monkeypatch, clumps())[0] > 1.2 * run(Spillway, monkeypatch, clumps())[0]
