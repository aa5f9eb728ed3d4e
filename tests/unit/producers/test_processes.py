"""Arrival processes have the rate, the burstiness and the movements that are asked of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.lineage.errors import UsageError
from spillway.producers.load import processes, recipes
from spillway.producers.load.processes import Leg
from spillway.producers.load.statistics import statistics


def rng(seed=1):
    return np.random.default_rng(seed)


def made(*words, seed=1):
    return recipes.make(words, seed)


def cv2_of(times):
    gaps = np.diff(times)
    return gaps.var() / gaps.mean() ** 2


def deviation(cv2, count):
    """Of the cv2 estimated from gamma gaps: their excess kurtosis is 6 cv2."""
    return cv2 * np.sqrt((2 + 6 * cv2) / count)


@pytest.mark.parametrize("cv2", [0, 0.25, 1, 4, 16])
@pytest.mark.parametrize("rate", [0.5, 150])
def test_gamma_has_its_rate_and_cv2(rate, cv2):
    times = made(f"gamma:rate={rate},cv2={cv2},for={40_000 / rate}")
    assert abs(len(times) - 40_000) <= 5 * np.sqrt(cv2 * 40_000) + 1
    assert cv2_of(times) == pytest.approx(cv2, abs=5 * deviation(cv2, 40_000) + 1e-9)


RATES = st.floats(0, 500).map(lambda rate: rate if rate >= 1 else 0.0)
PAIRS = st.tuples(RATES, RATES)
LEGS = st.lists(
    st.builds(Leg, st.floats(0.1, 60), PAIRS, st.tuples(st.floats(0, 6), st.floats(0, 6))), min_size=1, max_size=6
).filter(lambda legs: sum(leg.seconds * sum(leg.rate) for leg in legs) > 100)


@given(LEGS, st.integers(0, 1000))
def test_every_leg_has_its_number_of_arrivals(legs, seed):
    times = processes.arrivals(legs, rng(seed))
    edges = np.cumsum([0.0, *(leg.seconds for leg in legs)])
    assert np.all(np.diff(times) >= 0)
    assert times[0] >= 0
    assert times[-1] <= edges[-1]
    expected = np.array([leg.seconds * np.mean(leg.rate) for leg in legs])
    counts = np.histogram(times, edges)[0]
    assert np.all(np.abs(counts - expected) <= 7 * np.sqrt(6 * expected) + 60)
    assert not counts[expected == 0].any()


def test_rate_and_cv2_move_on_straight_lines():
    times = made("gamma:rate=100..300,cv2=1..9,for=800s")
    for quarter in range(4):
        begin, end = 200 * quarter, 200 * (quarter + 1)
        rate, cv2 = 125 + 50 * quarter, 2 + 2 * quarter
        count = 200 * rate
        inside = times[(times >= begin) & (times < end)]
        assert abs(len(inside) - count) <= 5 * np.sqrt((cv2 + 1) * count)
        assert cv2_of(inside) == pytest.approx(cv2, abs=5 * deviation(cv2 + 1, count) + 0.06 * cv2)  # its rate moves


def test_phases_follow_one_another_and_jump():
    times = made("poisson:rate=50,for=100s", "gamma:rate=0,for=50s", "gamma:rate=400,cv2=0,for=10")
    assert len(times[times < 100]) == pytest.approx(5000, abs=5 * np.sqrt(5000))
    assert not np.any((times > 100) & (times < 150))
    assert np.allclose(np.diff(times[times >= 150]), 1 / 400)


def test_mmpp_has_its_mean_rate_and_dispersion():
    times = made("mmpp:rate=20/220,stay=3s/1s,for=4h")
    mean, spread, memory = 70, 200**2 * 0.75 * 0.25, 1 / (1 / 3 + 1 / 1)
    assert len(times) / 14_400 == pytest.approx(mean, rel=5 * np.sqrt(2 * spread * memory / 14_400) / mean)
    longest = statistics(times, 60.0).scales[-1]
    assert longest.dispersion == pytest.approx(1 + 2 * spread * memory / mean, rel=0.4)  # 240 windows
    assert len(made("mmpp:rate=10/20/60,stay=1/1/1,for=1h")) / 3600 == pytest.approx(30, rel=0.05)


def test_diurnal_goes_from_low_to_high_and_back():
    times = made("diurnal:rate=20..180,period=400s,cv2=0,for=800s")
    counts = np.histogram(times, np.arange(0, 801, 100))[0]
    low, high = 100 * (100 - 80 * 2 / np.pi), 100 * (100 + 80 * 2 / np.pi)
    assert counts == pytest.approx([low, high, high, low] * 2, abs=3)


def test_sums_add_streams_that_do_not_disturb_one_another():
    first, second = ["gamma:rate=30,cv2=4,for=60s", "poisson:rate=10,for=60s"], ["poisson:rate=50,for=100s"]
    alone, both = made(*first), made(*first, "+", *second)
    assert np.isin(alone, both).all()
    others = both[~np.isin(both, alone)]
    assert len(others) == pytest.approx(5000, abs=5 * np.sqrt(5000))
    assert cv2_of(others) == pytest.approx(1, abs=0.12)
    assert np.array_equal(both, made(*first, "+", *second))
    assert not np.array_equal(both[:50], made(*first, "+", *second, seed=2)[:50])


@given(st.lists(st.integers(0, 2000), min_size=2, max_size=60).filter(lambda ticks: len(set(ticks)) > 1))
def test_envelope_and_dispersion_are_what_counting_gives(ticks):
    times = np.sort(ticks) / 64  # exact, as are the windows
    for scale in statistics(times, 0.25).scales:
        most = max(np.sum((times >= begin) & (times < begin + scale.seconds)) for begin in times)
        assert scale.envelope == most / scale.seconds
        counts = [np.sum(times // scale.seconds == n) for n in range(int(times[-1] // scale.seconds))]
        assert (scale.dispersion is None) == (len(counts) < 10 or not any(counts))
        if scale.dispersion is not None:
            assert scale.dispersion == pytest.approx(np.var(counts) / np.mean(counts))


@pytest.mark.parametrize("rate", [10, 30, 70, 130])
def test_an_even_load_has_its_rate_in_every_window_and_no_dispersion(rate):
    found = statistics(np.arange(60 * rate) / rate, 0.1)
    assert [scale.envelope for scale in found.scales] == pytest.approx([rate] * len(found.scales))
    assert all(scale.dispersion in {None, 0} for scale in found.scales)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["poisson"], "phase 1: 'poisson': 'rate' is missing; write it as in poisson:rate="),
        (["poisson:rate=1,for=1s", "gamma:rate=1,for=1s,cv=2"], "phase 2: .*'cv' is not a field"),
        (["gamma:rate=1,rate=2,for=1s"], "'rate' is given twice"),
        (["gamma:rate=-1,for=1s"], "rate is '-1', not a number of 0 or more"),
        (["gamma:rate=1..x,for=1s"], "rate is 'x'"),
        (["gamma:rate=1/2,for=1s"], "rate is '1/2'"),
        (["poisson:rate=1,for=0"], "for is '0', not a number above 0"),
        (["poisson:rate=1,for=1s..2s"], "must be a duration"),
        (["mmpp:rate=1/2,stay=1s,for=1s"], "two states or more"),
        (["mmpp:rate=1,stay=1s,for=1s"], "two states or more"),
        (["poisson:rate=1,for=1s", "+", "poisson:rate=0,for=1s"], "stream 2: 0 arrivals"),
        (["poisson:rate=1e9,for=24h"], "at most 1e"),
        (["poison:rate=1,for=1s"], "does not name an arrival process; write it as in poisson:"),
        (["+", "poisson:rate=1,for=1s"], "stream 1 has no phase"),
    ],
)
def test_what_is_no_recipe_is_refused(words, message):
    with pytest.raises(UsageError, match=message):
        made(*words)
