"""The running estimate of a batch's duration."""

from __future__ import annotations

import pytest

from agents.core.durations import RunningEstimate


def test_nothing_known_expects_nothing():
    assert RunningEstimate()(4) == 0.0


def test_the_profile_stands_in_until_a_size_was_measured():
    estimate = RunningEstimate(lambda n: 1.0 + n)
    estimate.observe(2, 9.0)
    assert estimate(2) == 9.0
    assert estimate(3) == 4.0


def test_sizes_not_seen_lie_on_the_line_through_those_seen():
    estimate = RunningEstimate(weight=0.2)
    for _ in range(50):
        estimate.observe(1, 0.030)
        estimate.observe(4, 0.060)
    assert estimate(2) == pytest.approx(0.040, rel=0.01)
    assert estimate(8) == pytest.approx(0.100, rel=0.01)


def test_one_size_alone_stands_for_all():
    estimate = RunningEstimate()
    estimate.observe(4, 0.05)
    assert estimate(1) == estimate(64) == pytest.approx(0.05)


def test_new_measurements_displace_old_ones():
    estimate = RunningEstimate(weight=0.1)
    estimate.observe(1, 1.0)
    for _ in range(100):
        estimate.observe(1, 2.0)
    assert estimate(1) == pytest.approx(2.0, rel=1e-3)


def test_larger_batches_are_never_expected_to_be_faster_and_none_ends_before_it_starts():
    estimate = RunningEstimate()
    estimate.observe(1, 5.0)
    estimate.observe(10, 0.1)
    assert estimate(100) >= estimate(5) >= 0.0
