"""The demo's load: relative to what the machine was measured to answer, and the same for every policy."""

import numpy as np
import pytest

from examples.plates.demonstration import SECONDS, due_times

CALM, FIRST_BURST, SECOND_BURST = (0, 8), (8, 12), (18, 23)  # seconds of traces/bursty.csv


def rate(due, span):
    first, last = span
    return np.count_nonzero((due >= first) & (due < last)) / (last - first)


@pytest.mark.parametrize("answers", [10.0, 45.0, 400.0])
def test_bursts_overload_the_machine_and_what_lies_between_does_not(answers):
    due = due_times(answers)
    assert due.max() < SECONDS
    assert rate(due, CALM) == pytest.approx(0.5 * answers, rel=0.15)
    assert rate(due, FIRST_BURST) == pytest.approx(1.6 * answers, rel=0.15)
    assert rate(due, SECOND_BURST) == pytest.approx(2.0 * answers, rel=0.15)


def test_every_policy_gets_the_same_arrivals():
    assert np.array_equal(due_times(30.0), due_times(30.0))
