"""Foretelling the way of a request: what is learned, how it fades, and that memory stays bounded."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.calibration import (
    EXECUTION,
    QUEUEING,
    TERMS,
    VISIT,
    WAIT,
    Calibration,
    Histogram,
)
from spillway.agents.core.paths import ANY, MOST_CHOICES, MOST_CLASSES, PathPredictor

POSE, FACE, BOTH, NONE = ("pose",), ("face",), ("face", "pose"), ()


def learned(*seen: tuple[str, tuple[str, ...], int]) -> PathPredictor:
    """A predictor that saw these: class, choice of `person`, times; mixed evenly."""
    predictor = PathPredictor()
    left = {(kind, choice): times for kind, choice, times in seen}
    while any(left.values()):
        for (kind, choice), times in left.items():
            if times:
                predictor.observe(kind, "person", choice)
                left[kind, choice] -= 1
    return predictor


def test_nothing_is_told_before_enough_was_seen():
    predictor = learned((ANY, POSE, 19))
    assert predictor.expected(ANY, 0.5) == {}
    assert predictor.chances(ANY, "person") == {}
    assert learned((ANY, POSE, 20)).expected(ANY, 0.5) == {"person": POSE}


def test_the_choices_that_cover_the_share_are_told():
    predictor = learned((ANY, POSE, 80), (ANY, FACE, 20))
    assert predictor.expected(ANY, 0.5) == {"person": POSE}
    assert predictor.expected(ANY, 0.79) == {"person": POSE}
    assert predictor.expected(ANY, 0.9) == {"person": ("face", "pose")}
    assert predictor.expected(ANY, 0.0) == {"person": POSE}
    assert predictor.expected(ANY, 1.0) == {"person": ("face", "pose")}


def test_a_choice_of_several_and_one_of_none():
    assert learned((ANY, BOTH, 90), (ANY, POSE, 10)).expected(ANY, 0.5) == {"person": BOTH}
    assert learned((ANY, NONE, 90), (ANY, POSE, 10)).expected(ANY, 0.5) == {"person": NONE}
    assert learned((ANY, NONE, 50), (ANY, POSE, 50)).expected(ANY, 0.9) == {"person": POSE}


def test_a_class_of_which_little_was_seen_borrows():
    predictor = learned(("crowd", POSE, 100))
    predictor.observe("new", "person", FACE)
    assert predictor.expected("new", 0.5) == {"person": POSE}


def test_what_was_learned_fades():
    predictor = learned((ANY, POSE, 5_000))
    for _ in range(2_000):
        predictor.observe(ANY, "person", FACE)
    assert predictor.chances(ANY, "person")[FACE] > 0.85
    assert predictor.expected(ANY, 0.5) == {"person": FACE}


def test_several_choosers_are_told_each_for_itself():
    predictor = PathPredictor()
    for number in range(100):
        predictor.observe(ANY, "first", ("a",))
        if number < 10:
            predictor.observe(ANY, "second", ("b",))
    assert predictor.expected(ANY, 0.5) == {"first": ("a",)}  # of `second` too little was seen


def test_memory_is_bounded():
    predictor, random = PathPredictor(), Random(1)
    for number in range(5 * MOST_CLASSES):
        choice = tuple(sorted(random.sample([f"s{each}" for each in range(12)], 4)))
        predictor.observe(f"class {number}", "person", choice)
        predictor.expected(f"class {number}", 0.5)
    assert len(predictor._classes) == MOST_CLASSES
    assert f"class {5 * MOST_CLASSES - 1}" in predictor._classes
    assert len(predictor._all["person"].counts) == MOST_CHOICES
    assert sum(predictor.chances("x", "person").values()) == pytest.approx(1)


def test_an_old_answer_is_given_for_a_while_and_then_a_new_one():
    predictor = learned((ANY, POSE, 30))
    assert predictor.expected(ANY, 1.0) == {"person": POSE}
    predictor.observe(ANY, "person", FACE)
    assert predictor.expected(ANY, 1.0) == {"person": POSE}
    for _ in range(32):
        predictor.observe(ANY, "person", POSE)
    assert predictor.expected(ANY, 1.0) == {"person": ("face", "pose")}


# Estimates held to what happened, and budgets in histograms.


def test_nothing_is_compared_before_anything_was_told():
    calibration = Calibration()
    calibration.happened(1, 1, 1)
    assert all(calibration.errors[term].count == 0 for term in TERMS)


def test_errors_are_what_happened_less_what_was_told():
    calibration = Calibration()
    calibration.told(0.1, 0.02, 0.05)
    calibration.happened(0.3, 0.01, 0.05)
    calibration.happened(0.1, 0.03, 0.05)
    assert calibration.errors[QUEUEING].total == pytest.approx(0.2)
    assert calibration.errors[WAIT].total == pytest.approx(0)
    assert calibration.errors[EXECUTION].total == 0
    assert calibration.errors[VISIT].total == pytest.approx(0.2)
    assert calibration.told_total[VISIT] == pytest.approx(0.34)
    assert calibration.happened_total[VISIT] == pytest.approx(0.54)


def test_the_newest_word_counts():
    calibration = Calibration()
    calibration.told(1, 0, 0)
    calibration.told(0, 0, 0)
    calibration.happened(0.5, 0, 0)
    assert calibration.errors[QUEUEING].total == 0.5


def test_what_is_no_number_is_left_out():
    calibration, histogram = Calibration(), Histogram()
    calibration.told(math.nan, 0, 0)
    calibration.happened(0, 0, 0)
    calibration.told(0, 0, 0)
    calibration.happened(math.inf, 0, 0)
    histogram.observe(math.nan)
    assert calibration.errors[VISIT].count == histogram.count == 0


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
