"""The linearly weighted window, by hand."""

import pytest

from agents.core.estimates.window import RecentMean, WorkloadVariation, guided


def closed(length, buckets):
    recent = RecentMean(length)
    for at, total, count in buckets:
        recent.close(at, total, count)
    return recent


def test_five_seconds_weigh_5_4_3_2_1_the_newest_most():
    recent = closed(5.0, [(at, at * 10.0, 10) for at in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)])
    # Means 2 to 6 (that of 1 is out of the window): (1*2 + 2*3 + 3*4 + 4*5 + 5*6) / 15
    mean, weight = recent.mean(6.0)
    assert mean == pytest.approx(70 / 15)
    assert weight == pytest.approx(30.0)


def test_requests_count_not_buckets():
    mean, _ = closed(5.0, [(1.0, 9.0, 9), (2.0, 50.0, 10)]).mean(2.0)
    assert mean == pytest.approx((0.8 * 9 + 50) / (0.8 * 9 + 10))


def test_any_period_will_do():
    often = closed(5.0, [(0.1 * tick, 2.0, 1) for tick in range(1, 100)])
    seldom = closed(5.0, [(20.0, 6.0, 2), (40.0, 8.0, 2)])
    assert often.mean(9.9) == (pytest.approx(2.0), pytest.approx(25.5, rel=0.01))
    assert seldom.mean(40.0) == (4.0, 2.0)


def test_nothing_seen_is_no_delay():
    assert closed(5.0, [(1.0, 3.0, 3), (7.0, 0.0, 0)]).mean(7.0) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("variation", "length"), [(None, 5.0), (0.0, 6.0), (0.49, 6.0), (0.5, 4.0), (0.99, 4.0), (1.0, 2.0), (3.0, 2.0)]
)
def test_the_guideline_of_the_paper(variation, length):
    assert guided(variation) == length


def test_variation_is_that_of_the_rate_and_not_of_poisson_arrivals():
    steady, bursty, unknown = WorkloadVariation(), WorkloadVariation(), WorkloadVariation()
    for second in range(60):
        steady.see(10 + (3 if second % 2 else -3), 1.0)  # the spread of Poisson arrivals, 3.0 around 10
        for _ in range(10):
            bursty.see(40 if second % 4 == 0 else 0, 0.1)
    unknown.see(10, 1.0)
    assert steady.coefficient == 0.0
    assert bursty.coefficient == pytest.approx(3**0.5, rel=0.01)
    assert unknown.coefficient is None
