"""How long is gathered between two sendings: nothing when idle, the most when they follow one another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.linger import Linger

MOST = 0.02
SENDING = 0.004


def play(gathering, arrivals):
    """Send what `arrivals` brings; give each item's wait until its sending begins, and the number of sendings."""
    now, at, sendings, waits = 0.0, 0, 0, []
    while at < len(arrivals):
        now = max(now, arrivals[at])
        now += gathering.pause(now)
        there = int(np.searchsorted(arrivals, now, side="right"))
        waits += list(now - arrivals[at:there])
        at, now, sendings = there, now + SENDING, sendings + 1
        gathering.sent(now)
    return np.array(waits), sendings


def poisson(rate, count=3_000):
    return np.cumsum(np.random.default_rng(7).exponential(1 / rate, count))


def at_once(arrivals):
    return play(Linger(0.0), arrivals)


@pytest.mark.parametrize("rate", [1, 5, 20])
def test_little_load_waits_as_if_nothing_were_gathered(rate):
    waits, _ = play(Linger(MOST), poisson(rate))
    bare, _ = at_once(poisson(rate))
    assert waits.mean() - bare.mean() < 0.0002
    assert np.median(waits) == 0


@pytest.mark.parametrize(("rate", "share"), [(150, 0.6), (600, 0.45)])
def test_much_load_makes_far_fewer_sendings(rate, share):
    _, sendings = play(Linger(MOST), poisson(rate))
    _, bare = at_once(poisson(rate))
    assert sendings < share * bare


@given(st.lists(st.floats(0, 0.2), min_size=1, max_size=200), st.floats(0, 0.1))
def test_nothing_is_held_for_longer_than_the_most_after_the_last_sending(gaps, most):
    gathering = Linger(most)
    ended = now = 0.0
    for gap in gaps:
        now += gap
        pause = gathering.pause(now)
        assert 0 <= pause <= most
        assert pause == 0 or now + pause <= ended + most + 1e-9
        assert gathering.pause(now + pause) <= 1e-9  # it is asked again when the pause is over
        now += pause
        ended = now = now + SENDING
        gathering.sent(ended)


def test_the_first_after_a_quiet_time_goes_at_once():
    gathering = Linger(MOST)
    _, _ = play(gathering, poisson(2_000))
    assert gathering.pause(poisson(2_000)[-1] + 1.0) == 0
