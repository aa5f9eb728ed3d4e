"""When an offline job pauses, and goes on."""

import pytest

from spillway.lineage.message import PlanWord
from spillway.producers.offline.pace import DOUBTED, LOOK, Pace

NOW = 1_000.0


def word(at, *, stage="s", replica=0, utilisation=0.0, slower=0.0, batches=10.0):
    return PlanWord(
        stage, replica, 0, round(at * 1e6), 1.0,
        completion_rate=2 * batches, recent_batch=2.0, utilisation=utilisation, slower=slower,
    )  # fmt: skip


def heard(*words):
    pace = Pace()
    for one in words:
        pace.hear(one.at_us / 1e6, one)
    return pace


def test_without_words_it_goes_on():
    assert Pace().paused(NOW, 0) == ""


@pytest.mark.parametrize(("utilisation", "pauses"), [(0.39, False), (0.41, True)])
def test_it_pauses_over_two_fifths_of_the_workers_time(utilisation, pauses):
    assert bool(heard(word(NOW, utilisation=utilisation)).paused(NOW, 5)) is pauses


def test_it_says_which_stage_and_how_much():
    said = heard(word(NOW), word(NOW, stage="t", utilisation=0.5)).paused(NOW, 0)
    assert said == "online queries take 50 % of the time of stage 't'"


def test_replicas_count_together_and_seconds_too():
    assert not heard(word(NOW, utilisation=0.6), word(NOW, replica=1)).paused(NOW, 0)
    assert not heard(word(NOW - 2, utilisation=0.1), word(NOW, utilisation=0.6)).paused(NOW, 0)
    assert heard(word(NOW - 2, utilisation=0.3), word(NOW, utilisation=0.6)).paused(NOW, 0)


def test_it_goes_on_when_load_has_fallen_or_nobody_speaks_any_more():
    pace = heard(word(NOW, utilisation=0.9))
    assert pace.paused(NOW, 0)
    assert not pace.paused(NOW + LOOK + 0.1, 0)


@pytest.mark.parametrize(("slower", "batches", "pauses"), [(1.1, 10, False), (1.3, 10, True), (9.0, 1, False)])
def test_it_pauses_where_online_batches_take_longer_than_their_profile(slower, batches, pauses):
    assert bool(heard(word(NOW, slower=slower, batches=batches)).paused(NOW, 5)) is pauses


def test_a_stage_that_is_as_slow_without_the_job_has_a_profile_that_is_out_of_date():
    pace, now = Pace(), NOW
    pauses = []
    while now <= NOW + DOUBTED + 2:
        pace.hear(now, word(now, slower=1.5))
        pauses.append(bool(pace.paused(now, 0)))
        now += 1.0
    assert pauses[0]
    assert not pauses[-1]
    for _ in range(3):
        pace.hear(now, word(now, slower=2.5))
    assert pace.paused(now, 5)
