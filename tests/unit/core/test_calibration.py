"""Estimates held to what happened, and budgets in histograms."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.core.calibration import (
    EXECUTION,
    KEPT,
    QUEUEING,
    REFUSED,
    TERMS,
    VISIT,
    WAIT,
    Budgets,
    Calibration,
    Histogram,
)


def test_nothing_is_compared_before_anything_was_told():
    calibration = Calibration()
    calibration.happened(1, 1, 1)
    assert all(calibration.errors[term].count == 0 for term in TERMS)
    assert calibration.ratio(VISIT) is None
    assert calibration.errors[VISIT].mean == 0


def test_errors_are_what_happened_less_what_was_told():
    calibration = Calibration()
    calibration.told(0.1, 0.02, 0.05)
    calibration.happened(0.3, 0.01, 0.05)
    calibration.happened(0.1, 0.03, 0.05)
    assert calibration.errors[QUEUEING].mean == pytest.approx(0.1)
    assert calibration.errors[WAIT].mean == pytest.approx(0)
    assert calibration.errors[EXECUTION].mean == 0
    assert calibration.errors[VISIT].mean == pytest.approx(0.1)
    assert calibration.ratio(QUEUEING) == pytest.approx(0.2 / 0.4)
    assert calibration.ratio(VISIT) == pytest.approx(0.34 / 0.54)


def test_the_newest_word_counts():
    calibration = Calibration()
    calibration.told(1, 0, 0)
    calibration.told(0, 0, 0)
    calibration.happened(0.5, 0, 0)
    assert calibration.errors[QUEUEING].mean == 0.5


def test_what_is_no_number_is_left_out():
    calibration, histogram = Calibration(), Histogram()
    calibration.told(math.nan, 0, 0)
    calibration.happened(0, 0, 0)
    calibration.told(0, 0, 0)
    calibration.happened(math.inf, 0, 0)
    histogram.observe(math.nan)
    assert calibration.errors[VISIT].count == histogram.count == 0
    assert histogram.mean == 0


@given(st.lists(st.floats(-100, 100)))
def test_a_histogram_counts_everything_once_and_cumulates(values):
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    buckets = histogram.buckets()
    assert buckets[-1] == ("+Inf", len(values))
    assert [count for _, count in buckets] == sorted(count for _, count in buckets)
    for bound, count in buckets[:-1]:
        assert count == sum(value <= float(bound) for value in values)
    assert histogram.total == pytest.approx(sum(values))


def test_budgets_are_counted_by_fate():
    budgets = Budgets()
    budgets.kept(0.3)
    budgets.refused(-0.1)
    budgets.refused(0.2, short=0.04)
    budgets.consumed(0.05)
    assert budgets.left[KEPT].count == 1
    assert budgets.left[REFUSED].count == 2
    assert budgets.left[REFUSED].mean == pytest.approx(0.05)
    assert budgets.shortfall.count == 1  # a policy without an estimate is short of nothing
    assert budgets.consumption.mean == pytest.approx(0.05)
