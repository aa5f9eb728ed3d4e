import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.live.stage.intake import MAX_BUDGET_US, SKEW_US, Times, effective

NOW = 1_700_000_000_000_000
SLO = 400_000
times = st.integers(0, 2**63 - 1)


def test_a_sender_whose_clock_is_right_is_believed():
    assert effective(NOW, NOW + SLO, NOW + 5_000, SLO) == Times(NOW, NOW + SLO)


@pytest.mark.parametrize("skew", [-SKEW_US, SKEW_US])
def test_a_second_of_skew_is_allowed_and_not_more(skew):
    assert not effective(NOW + skew, NOW + skew + SLO, NOW, SLO).skewed
    further = skew + (1 if skew > 0 else -1)
    assert effective(NOW + further, NOW + further + SLO, NOW, SLO) == Times(NOW, NOW + SLO, skewed=True)


def test_an_unknown_append_time_changes_nothing():
    for unknown in (0, -1):
        assert effective(5, 5 + SLO, unknown, SLO) == Times(5, 5 + SLO)


def test_a_deadline_before_the_sending_is_due_at_once():
    assert effective(NOW, NOW - 7, NOW, SLO) == Times(NOW, NOW, clamped=True)


def test_a_deadline_in_the_far_future_is_clamped():
    assert effective(NOW, 2**63 - 1, NOW, SLO) == Times(NOW, NOW + MAX_BUDGET_US, clamped=True)
    slow = MAX_BUDGET_US
    assert effective(NOW, NOW + 5 * slow, NOW, slow) == Times(NOW, NOW + 5 * slow)


@given(times, times, st.integers(-1, 2**62), st.integers(1, 10**10))
def test_the_result_is_always_plausible(sent, deadline, appended, slo):
    result = effective(sent, deadline, appended, slo)
    assert 0 <= result.deadline_us - result.sent_us <= max(MAX_BUDGET_US, 10 * slo)
    if appended > 0:
        assert abs(result.sent_us - appended) <= SKEW_US
    if 0 <= deadline - sent <= SLO:
        assert result.deadline_us - result.sent_us == deadline - sent


@given(times, times, st.integers(1, 2**62), st.integers(1, 10**10))
def test_times_that_were_mended_once_stay(sent, deadline, appended, slo):
    once = effective(sent, deadline, appended, slo)
    assert effective(once.sent_us, once.deadline_us, appended, slo) == Times(once.sent_us, once.deadline_us)
