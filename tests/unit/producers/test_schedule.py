import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.errors import UsageError
from producers.load import schedule


def rng(seed=1):
    return np.random.default_rng(seed)


def test_constant_is_even_and_starts_at_zero():
    assert schedule.constant(4, 1.0).tolist() == [0.0, 0.25, 0.5, 0.75]
    assert len(schedule.constant(0.1, 100)) == 10
    assert schedule.constant(3, 0.5).tolist() == [0.0, 1 / 3]


def test_poisson_has_its_rate_and_exponential_gaps():
    times = schedule.poisson(200, 500, rng())
    gaps = np.diff(times)
    assert len(times) == pytest.approx(100_000, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("cv", [0.2, 1.0, 4.0])
def test_gamma_has_its_rate_and_variation(cv):
    times = schedule.gamma(200, cv, 1000, rng())
    gaps = np.diff(times)
    assert len(times) == pytest.approx(200_000, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)
    assert times[-1] < 1000


def test_the_same_seed_gives_the_same_load():
    assert np.array_equal(schedule.gamma(50, 2, 10, rng(7)), schedule.gamma(50, 2, 10, rng(7)))
    assert not np.array_equal(schedule.gamma(50, 2, 10, rng(7)), schedule.gamma(50, 2, 10, rng(8)))


def test_gamma_without_variation_is_constant():
    assert np.array_equal(schedule.gamma(10, 0, 3, rng()), schedule.constant(10, 3))


def test_counts_fall_within_their_seconds():
    times = schedule.from_counts([0, 1, 5], [3, 0, 200], rng())
    assert np.all(np.diff(times) >= 0)
    assert np.floor(times).tolist() == [0.0] * 3 + [5.0] * 200


@given(st.lists(st.integers(0, 50), min_size=1, max_size=50), st.floats(0.01, 5))
def test_scaled_counts_keep_the_total(counts, scale):
    times = schedule.from_counts(range(len(counts)), counts, rng(), scale=scale)
    assert abs(len(times) - sum(counts) * scale) < 1
    assert np.all(np.diff(times) >= 0)


@given(st.lists(st.floats(0, 1e4), max_size=40), st.floats(0.01, 5))
def test_scaling_an_arrival_list_stays_within_it(times, scale):
    denser = schedule.scaled(times, scale, rng())
    assert np.all(np.diff(denser) >= 0)
    assert int(scale) * len(times) <= len(denser) <= (int(scale) + 1) * len(times)
    if len(denser):
        assert min(times) <= denser[0]
        assert denser[-1] <= max(times)


def test_scaling_up_keeps_the_originals_and_makes_no_pairs():
    times = np.arange(1000.0)
    twice = schedule.scaled(times, 2, rng())
    assert len(twice) == 2000
    assert np.isin(times, twice).all()
    assert len(np.unique(twice[:-2])) == 1998


def test_scaling_down_thins():
    assert len(schedule.scaled(np.arange(10_000.0), 0.3, rng())) == pytest.approx(3000, rel=0.06)


def test_pace_compresses_before_it_cuts():
    assert schedule.paced([0, 1, 2, 3, 4], speed=2, duration=1.5).tolist() == [0, 0.5, 1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: schedule.constant(0, 1),
        lambda: schedule.constant(1, 0),
        lambda: schedule.poisson(float("nan"), 1, rng()),
        lambda: schedule.gamma(1, -1, 1, rng()),
        lambda: schedule.paced([0], speed=0),
        lambda: schedule.paced([0], duration=-1),
        lambda: schedule.scaled([0], 0, rng()),
        lambda: schedule.from_counts([0], [1], rng(), scale=-1),
    ],
)
def test_what_is_no_load_is_refused(call):
    with pytest.raises(UsageError):
        call()
