"""What a replica believes of the others: the newest plausible word of each, for as long as it is fresh."""

import math
from bisect import bisect_right
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.board import (
    APART,
    FUTURE,
    NEGATIVE,
    NOT_A_NUMBER,
    OUTDATED,
    QUANTILES,
    TOO_MUCH,
    UNKNOWN,
    Board,
    silence_of,
    sketch,
    state_of,
    word_of,
)
from spillway.agents.core.policy import StageState
from spillway.lineage.message import PlanWord
from spillway.lineage.values.codec import Decoder, encode_word

NOW = 1_800_000_000.0
WORD = PlanWord(
    "a", 0, int(1e6 * (NOW - 60)), int(1e6 * NOW), 1.0, 0.01, 5.0, (0.0, 0.02), 9, 8, 6.5, 0.03, 0.025, 10.0
)


def board(**changes):
    return Board(**{"stages": ("a", "b"), "replicas": 4, "silence": silence_of(1.0), **changes})


def at(seconds, **changes):
    return replace(WORD, at_us=int(1e6 * (NOW + seconds)), **changes)


def test_a_restart_replaces_what_it_was_before_even_if_its_clock_went_back():
    there = board()
    there.hear(NOW, at(0.0))
    again = at(-0.5, began_us=WORD.began_us + 1, queueing=0.5)
    assert there.hear(NOW, again) is None
    assert there.hear(NOW + 0.5, at(0.5)) == OUTDATED  # the last words of the one before
    assert [state.queueing for state in there.states(NOW)["a"]] == [0.5]


def test_whoever_is_silent_holds_up_nobody():
    there = board()
    there.hear(NOW, at(0.0, began_us=int(1e6 * (NOW + APART))))  # a process that claims to be the latest of all
    assert there.hear(NOW + 1, at(1.0)) == OUTDATED
    assert there.hear(NOW + 4, at(4.0)) is None


def test_an_old_word_of_a_topic_read_from_its_beginning_is_silent_but_known():
    there = board()
    assert there.hear(NOW, at(-3_000.0)) is None
    assert there.states(NOW) == {}
    assert [round(heard.age) for heard in there.heard(NOW)] == [3_000]
    assert there.hear(NOW, at(-4_000.0)) == OUTDATED


def test_a_time_before_the_epoch_is_refused():
    assert board().hear(NOW, replace(WORD, at_us=-1)) == NEGATIVE
    assert board().hear(NOW, replace(WORD, began_us=-1)) == NEGATIVE


def test_a_replica_that_stops_for_good_is_forgotten_at_once():
    there = board()
    there.hear(NOW, WORD)
    there.forget("a", 0)
    there.forget("b", 3)
    assert there.heard(NOW) == []


NONSENSE = {
    "another stage": ({"stage": "c"}, UNKNOWN),
    "replica -1": ({"replica": -1}, UNKNOWN),
    "replica 4": ({"replica": 4}, UNKNOWN),
    "said later than now": ({"at_us": int(1e6 * (NOW + APART + 0.01))}, FUTURE),
    "begun later than now": ({"began_us": 2**62}, FUTURE),
    "a negative infinity": ({"recent_duration": -math.inf}, NOT_A_NUMBER),
    "NaN": ({"queueing": math.nan}, NOT_A_NUMBER),
    "an infinite rate": ({"arrival_rate": math.inf}, NOT_A_NUMBER),
    "a NaN among negatives": ({"duration": -1.0, "drop_rate": math.nan}, NOT_A_NUMBER),
    "a negative delay": ({"queueing": -0.001}, NEGATIVE),
    "a negative wait": ({"waits": (0.0, -0.00001)}, NEGATIVE),
    "a negative hop": ({"hops": (-0.001, 0.01)}, NEGATIVE),
    "a negative backlog": ({"backlog": -1}, NEGATIVE),
    "a negative share": ({"drop_rate": -0.1}, NEGATIVE),
    "a batch of two hours": ({"duration": 7200.0}, TOO_MUCH),
    "a wait of two hours": ({"waits": (7200.0,)}, TOO_MUCH),
    "more dropped than came": ({"drop_rate": 1.01}, TOO_MUCH),
    "ten billion a second": ({"completion_rate": 1e10}, TOO_MUCH),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_what_cannot_be_true_is_refused_counted_and_changes_nothing(name):
    changes, reason = NONSENSE[name]
    there = board()
    there.hear(NOW, WORD)
    before = there.states(NOW)
    assert there.hear(NOW, replace(at(0.5), **changes)) == reason
    assert there.states(NOW) == before
    assert there.refused == {reason: 1}


anything = st.floats(allow_nan=True, allow_infinity=True, width=32)
words = st.builds(
    PlanWord,
    st.sampled_from(["a", "b", "c", ""]),
    st.integers(-2, 6),
    *[st.integers(int(1e6 * (NOW - 100)), int(1e6 * (NOW + 3))) | st.integers(-(2**63), 2**63 - 1)] * 2,
    anything,
    anything,
    anything,
    st.lists(st.floats(-1, 1e4), max_size=40).map(tuple),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**31), 2**31 - 1),
    *[anything] * 6,
    st.integers(-(2**31), 2**31 - 1),
    st.booleans(),
)


@given(st.lists(st.tuples(st.floats(0, 10), words), max_size=20))
def test_whatever_is_said_states_are_plausible_and_memory_is_bounded(said):
    there = board()
    now = NOW
    for later, word in said:
        now += later
        there.hear(now, word)
    assert len(there.heard(now)) <= 2 * 4
    for states in there.states(now).values():
        for state in states:
            numbers = [state.queueing, state.duration, state.arrival_rate, state.drop_rate, state.backlog, *state.waits]
            assert all(math.isfinite(number) and number >= 0 for number in numbers)
            assert state.at <= now + APART


@given(
    st.builds(
        StageState,
        st.just("a"),
        st.integers(0, 3),
        st.just(NOW),
        st.floats(0, 100),
        st.floats(0, 6e4),
        st.lists(st.floats(0, 10), max_size=100).map(tuple),
        st.integers(0, 10_000),
        st.integers(1, 64),
        *[st.floats(0, 64)] * 5,
        st.floats(0, 1),
        st.integers(0, 10_000),
        st.booleans(),
        st.floats(0, 60),
    )
)
def test_a_state_crosses_the_wire_within_its_error(state):
    arrived = state_of(Decoder().word(encode_word(word_of(state, int(1e6 * NOW)))))
    for name in ("queueing", "entered", "recent_batch", "duration", "arrival_rate", "drop_rate", "span"):
        assert getattr(arrived, name) == pytest.approx(getattr(state, name), rel=1e-7, abs=1e-30)
    for name in ("stage", "replica", "waits_seen", "batch", "backlog", "hbf"):
        assert getattr(arrived, name) == getattr(state, name)
    assert arrived.at == pytest.approx(state.at, abs=1e-6)
    told = word_of(state, 0).waits
    assert arrived.waits == pytest.approx(told, rel=1e-7, abs=1e-30)


def test_what_takes_longer_than_is_believed_is_told_as_that():
    there, state = board(), StageState("a", 0, NOW, queueing=1e12, waits=(1.0, 1e12), hops=(7200.0,), duration=7200.0)
    assert there.hear(NOW, word_of(state, 0)) is None
    (told,) = there.states(NOW)["a"]
    assert (told.queueing, told.waits, told.hops, told.duration) == (3600.0, (1.0, 3600.0), (3600.0,), 3600.0)


# The quantiles that stand for many waits are as close to them as the module says.


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
