"""The distribution of batch waits, from samples, from quantiles, and where nothing is said."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agents.core.board import sketch
from agents.core.estimates.outlook import Sampler, pool, quantile, uniform
from agents.core.policy import StageState


def told(waits, seen=None):
    return StageState("s", 0, 0.0, waits=waits, waits_seen=len(waits) if seen is None else seen)


def test_samples_are_joined_as_they_are():
    assert sorted(pool([told([1.0, 2.0]), told([]), told([3.0])], 10)) == [1.0, 2.0, 3.0]
    assert len(pool([told([])], 10)) == 0


def test_quantiles_count_for_as_many_waits_as_they_stand_for():
    joined = pool([told([0.0] * 24, 9_000), told([1.0] * 24, 1_000)], 1_000)
    assert len(joined) == 1_000
    assert joined.mean() == pytest.approx(0.1)


@example([1.0] * 183 + [0.0] * 33, 0.1484375)
@given(st.lists(st.floats(0, 1), min_size=200, max_size=400), st.floats(0.02, 0.98))
def test_a_quantile_of_a_sketch_is_one_of_the_samples_nearby(samples, share):
    """The sketch says its error: 1/(2n) + 1/(2N); the pool adds a step of its own size."""
    off = 1 / 48 + 1 / 400 + 2 / len(samples)
    found = quantile(pool([told(sketch(samples), len(samples))], 10_000), share)
    ordered = np.sort(samples)
    low, high = (
        np.quantile(ordered, min(1, max(0, each)), method="closest_observation") for each in (share - off, share + off)
    )
    assert low - 1e-9 <= found <= high + 1e-9


def test_the_quantile_is_the_smallest_value_that_covers_the_share():
    values = np.array([4.0, 1.0, 3.0, 2.0])
    assert [quantile(values, share) for share in (0, 0.25, 0.26, 0.5, 1)] == [1, 1, 2, 2, 4]


@pytest.mark.parametrize(("stages", "w"), [(1, 0.10), (2, 0.44), (3, 0.84), (4, 1.24)])
def test_the_sums_of_even_waits_have_the_quantiles_that_the_paper_gives(stages, w):
    """Section 4.2: with equal durations d and lambda = .1, w is .10 d, .44 d, .84 d, 1.24 d."""
    sampler, waits = Sampler(10_000, seed=0), uniform(1.0, 10_000)
    total = sum(sampler.draw(place, waits) for place in range(stages))
    assert quantile(total, 0.1) == pytest.approx(w, abs=0.02)


def test_draws_of_two_stages_are_independent_and_repeat():
    sampler, waits = Sampler(10_000, seed=0), uniform(1.0, 10_000)
    one, other = sampler.draw(0, waits), sampler.draw(1, waits)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.03
    assert (Sampler(10_000, seed=0).draw(1, waits) == other).all()
