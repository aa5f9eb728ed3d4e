"""The quantiles that stand for many waits are as close to them as the module says."""

from bisect import bisect_right
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.core.board import QUANTILES, sketch


def gap(one, other):
    """The largest difference between the shares at or below a value, over all values."""
    one, other = sorted(one), sorted(other)
    return max(
        abs(bisect_right(one, value) / len(one) - bisect_right(other, value) / len(other)) for value in {*one, *other}
    )


@given(st.lists(st.floats(0, 100), min_size=1, max_size=300))
def test_a_sketch_is_off_by_half_a_step_at_most(durations):
    told = sketch(durations)
    assert list(told) == sorted(told)
    assert set(told) <= set(durations)
    bound = 0 if len(durations) <= QUANTILES else 1 / (2 * QUANTILES) + 1 / (2 * len(durations))
    assert gap(durations, told) <= bound + 1e-12


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_the_quantile_of_a_sum_is_off_by_as_many_half_steps_as_there_are_stages(stages):
    random = Random(stages)
    samples = [[random.random() ** 3 for _ in range(2_000)] for _ in range(stages)]
    told = [sketch(waits) for waits in samples]
    sums = [sorted(sum(random.choice(waits) for waits in of) for _ in range(20_000)) for of in (samples, told)]
    noise = 0.02  # of 20,000 draws, on either side
    assert gap(*sums) <= stages / (2 * QUANTILES) + noise


def test_the_bound_is_reached_so_it_is_no_looser_than_it_need_be():
    durations = [float(value) for value in range(10 * QUANTILES)]
    assert gap(durations, sketch(durations)) >= 1 / (2 * QUANTILES) - 1 / len(durations)


def test_nothing_is_told_of_nothing():
    assert sketch([]) == ()
