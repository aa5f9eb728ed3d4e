"""Each rule of `spillway` is worth its place: taken out, short bursts cost visibly more in a small simulation.

Five seconds at half the capacity and two at 1.4 times it, four times over, on lv with one queue per stage.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agents.bench.pard.applications import application, capacity_of, provision
from agents.bench.pard.cases import good_of
from agents.core import policies
from agents.core.estimates.outlook import Outlook
from agents.core.policies.adaptive import HIGH
from agents.core.policies.spillway import Spillway
from agents.sim.simulation import simulate
from producers.load import schedule

LEVELS = ([0.5] * 5 + [1.4] * 2) * 4


class StrictWhereNoneWaits(Spillway):
    def _renew(self):
        super()._renew()
        self._least = self._needed


class LenientWhereOthersWait(Spillway):
    def _renew(self):
        super()._renew()
        self._needed = self._least


class QueuesOfTheLastSeconds(Spillway):
    def report(self, now, load):
        self._seen.waits += self._forming.started(now) if self._pressed else []
        return self._seen.report(now, load)


class QueuesUnknown(Spillway):
    def report(self, now, load):
        return replace(super().report(now, load), queueing=0.0)


class FullBatches(Spillway):
    """d of full batches and, beside it, the waits."""

    def __init__(self, view, parameters):
        super().__init__(view, parameters)
        self._forming._longer = [0.0] * len(self._forming._longer)
        self._outlook = view.shared[Outlook, parameters.quantile, parameters.samples]
        self._renew()

    def _at_least(self, later):
        return sum(self.view.facts[stage].duration(1) for stage in (self.view.stage, *later.path))


class WaitsAlone(Spillway):
    """Batches of one, and the waits."""

    def __init__(self, view, parameters):
        super().__init__(view, parameters)
        self._forming._longer = [0.0] * len(self._forming._longer)


class CalmTimesToo(Spillway):
    def tick(self, now, load, states):
        super().tick(now, load, states)
        self._pressed = True


class NothingExpectedBeforehand(Spillway):
    def __init__(self, view, parameters):
        super().__init__(view, parameters)
        self._seen.waits.clear()


class HighBudgetsFirst(Spillway):
    order = HIGH


MUTANTS = (
    StrictWhereNoneWaits,
    LenientWhereOthersWait,
    QueuesOfTheLastSeconds,
    FullBatches,
    WaitsAlone,
    CalmTimesToo,
    NothingExpectedBeforehand,
    HighBudgetsFirst,
)


def bursts():
    lv = application("lv")
    workers = provision(lv.spec, 120, {})
    rng = np.random.default_rng(0)
    counts = rng.poisson(capacity_of(lv.spec, workers, {}) * np.array(LEVELS))
    return lv, workers, schedule.from_counts(np.arange(len(LEVELS)), counts, rng)


def run(policy, monkeypatch):
    """Drops and seconds wasted."""
    monkeypatch.setitem(policies.POLICIES, "spillway", policy)
    lv, workers, due = bursts()
    result = simulate(lv, due, workers=workers, dispatch="shared", policy="spillway", period=0.1)
    good = good_of(result)
    return int((~good).sum()), float(result.spent[~good].sum())


@pytest.fixture(scope="module")
def whole():
    with pytest.MonkeyPatch.context() as monkeypatch:
        return run(Spillway, monkeypatch)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_without_a_rule_more_is_dropped(mutant, whole, monkeypatch):
    assert run(mutant, monkeypatch)[0] > 1.07 * whole[0]


def test_without_the_queues_of_later_stages_more_is_wasted(whole, monkeypatch):
    dropped, wasted = run(QueuesUnknown, monkeypatch)
    assert dropped > whole[0]
    assert wasted > 1.5 * whole[1]
