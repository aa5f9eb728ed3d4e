"""A child's life: restarts with growing delays, giving up, stopping, with the clock in the test's hands."""

import itertools
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.supervise.lifecycle import (
    ALIVE,
    ENDED,
    FENCED,
    TRANSITIONS,
    Action,
    Event,
    Lifecycle,
    RestartPolicy,
    State,
)
from spillway.agents.supervise.supervisor import Supervisor
from spillway.lineage.errors import FencedError

POLICY = RestartPolicy(
    max_deaths=3, forgiven_after=12.0, first_delay=1.0, longest_delay=5.0, jitter=0.0, start_timeout=30.0, grace=10.0
)


def born(policy=POLICY, now=0.0):
    life = Lifecycle(policy, now, lambda: 0.0)
    assert life.step(now, exit_code=None, ready=False) is Action.START
    return life


def look(life, now, exit_code=None, ready=False):
    return life.step(now, exit_code=exit_code, ready=ready)


def test_restarts_after_delays_that_double():
    life = born(RestartPolicy(max_deaths=10, first_tries=10, first_delay=1.0, longest_delay=3.0, jitter=0.0))
    now, delays = 0.0, []
    for _ in range(4):
        look(life, now, exit_code=1)
        delays.append(life.due - now)
        assert life.state is State.BACKING_OFF
        assert look(life, life.due - 0.01) is Action.NOTHING
        now = life.due
        assert look(life, now) is Action.START
    assert delays == [1.0, 2.0, 3.0, 3.0]
    assert life.restarts == 4


def test_a_fenced_child_waits_for_a_word_and_loses_no_try():
    assert FencedError.exit_code == FENCED
    life = born()
    for times in range(10):
        look(life, 1.0, exit_code=FENCED)
        assert (life.state, life.fenced, life.deaths) == (State.BACKING_OFF, True, 0)
        assert look(life, 1e9) is Action.NOTHING
        life.cleared(2.0)
        assert not life.fenced
        assert look(life, 2.0 + POLICY.fenced_delay - 0.01) is Action.NOTHING
        assert look(life, 2.0 + POLICY.fenced_delay) is Action.START
        assert life.restarts == times + 1
    look(life, 3.0, exit_code=1)
    due = life.due
    life.cleared(4.0)
    assert life.due == due, "it was not fenced"
    life.take(5.0, Event.STOP)
    assert life.state is State.STOPPED


def test_one_that_was_never_ready_is_given_fewer_tries():
    policy = RestartPolicy(max_deaths=5, first_tries=2, jitter=0.0)
    fresh, proven = born(policy), born(policy)
    look(proven, 0.5, ready=True)
    for life in (fresh, proven):
        look(life, 1.0, exit_code=1)
        look(life, 5.0)
        look(life, 6.0, exit_code=1)
    assert fresh.state is State.FAILED
    assert proven.state is State.BACKING_OFF


def die_and_return(life, now, served):
    """Serve for so long, die, and come back when it is due; returns when that is."""
    look(life, now, ready=True)
    look(life, now + served, exit_code=1)
    assert life.state is State.BACKING_OFF
    assert look(life, life.due) is Action.START
    return life.due


def test_one_that_was_ready_with_all_others_is_started_again_for_ever_with_delays_that_grow_to_the_longest():
    life, now, delays = born(RestartPolicy(jitter=0.0)), 1.0, []
    life.established = True
    for _ in range(2000):
        died = now + 0.5
        now = die_and_return(life, now, served=0.5)
        delays.append(now - died)
    assert delays[:4] == pytest.approx([0.2, 0.4, 0.8, 1.6])
    assert delays[10:] == pytest.approx([30.0] * 1990)
    assert life.deaths_left is None


def test_long_service_between_two_deaths_keeps_the_delay_short():
    life, now = born(RestartPolicy(jitter=0.0)), 1.0
    life.established = True
    for _ in range(50):
        died = now + 20.0
        now = die_and_return(life, now, served=20.0)
        assert now - died == pytest.approx(0.2)


def test_give_up_ends_it_at_that_death_in_a_row():
    life, now = born(RestartPolicy(give_up=7, jitter=0.0)), 1.0
    life.established = True
    for n in range(6):
        now = die_and_return(life, now, served=0.5)
        assert life.deaths_left == 6 - n
    look(life, now, ready=True)
    look(life, now + 1.0, exit_code=1)
    assert life.state is State.FAILED


def test_one_of_a_pipeline_that_has_served_before_is_tried_for_ever():
    """A gate that was killed five times after its supervisor was restarted had ended the pipeline."""
    life, now = born(), 0.0
    life.served_before = True
    for _ in range(20):
        look(life, now, exit_code=-9)
        assert life.state is State.BACKING_OFF
        now = life.due
        assert look(life, now) is Action.START
    look(life, now, exit_code=2)
    assert life.state is State.FAILED  # its input has become wrong


def test_a_place_flaps_from_the_third_death_until_service_has_made_it_good():
    life, now = born(), 1.0
    life.established = True
    for n in range(3):
        assert not life.flaps(now), n
        now = die_and_return(life, now, served=0.5)
    assert life.flaps(now)
    look(life, now, ready=True)
    assert life.flaps(now + 11.9)
    assert not life.flaps(now + 12.1)


def test_one_that_is_given_up_flaps():
    life = born()
    look(life, 1.0, exit_code=2)
    assert life.flaps(2.0)


def test_one_that_never_gets_ready_is_killed_once():
    life = born()
    assert look(life, 29.9) is Action.NOTHING
    assert look(life, 30.0) is Action.KILL
    assert look(life, 30.1) is Action.NOTHING
    look(life, 30.2, exit_code=-9)
    assert life.state is State.BACKING_OFF


def test_a_stalled_one_is_killed_and_comes_back():
    life = born()
    look(life, 1.0, ready=True)
    assert life.take(40.0, Event.STALLED) is Action.KILL
    assert life.take(40.1, Event.STALLED) is Action.NOTHING
    look(life, 40.2, exit_code=-9)
    assert look(life, life.due) is Action.START
    look(life, 50.0, ready=True)
    assert life.take(90.0, Event.STALLED) is Action.KILL


def test_one_that_starts_is_not_stalled():
    assert born().take(10.0, Event.STALLED) is Action.NOTHING


def test_stop_asks_then_forces():
    life = born()
    look(life, 1.0, ready=True)
    assert life.take(2.0, Event.STOP) is Action.TERMINATE
    assert life.take(3.0, Event.STOP) is Action.NOTHING
    assert look(life, 11.9) is Action.NOTHING
    assert look(life, 12.0) is Action.KILL
    look(life, 12.1, exit_code=-9)
    assert life.state is State.STOPPED


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_jitter_only_shortens_the_delay(chance):
    policy = RestartPolicy(first_delay=1.0, longest_delay=10.0, jitter=0.5)
    assert 0.5 <= policy.delay(1, chance) <= 1.0
    assert 5.0 <= policy.delay(30, chance) <= 10.0


def test_the_table_never_leaves_an_end():
    assert not [state for state, _ in TRANSITIONS if state in ENDED]
    started = [target for target, action in TRANSITIONS.values() if action is Action.START]
    assert set(started) <= ALIVE


@given(st.lists(st.tuples(st.floats(0.01, 20.0), st.sampled_from(["look", "ready", "die", "misuse", "stall", "stop"]))))
def test_whatever_happens_it_never_runs_twice_and_stopping_ends_it(steps):
    life = Lifecycle(POLICY, 0.0, lambda: 0.0)
    now, alive = 0.0, False
    finale = [(POLICY.grace, "stop"), (POLICY.grace + 1, "look"), (0.1, "look"), (0.1, "look")]
    for pause, what in itertools.chain(steps, finale):
        now += pause
        exit_code = {"die": 1, "misuse": 2}.get(what) if alive else None
        if exit_code is not None:
            alive = False
        if what == "stop":
            action = life.take(now, Event.STOP)
        elif what == "stall":
            action = life.take(now, Event.STALLED)
        else:
            action = life.step(now, exit_code=exit_code if alive or exit_code else None, ready=what == "ready")
        if action is Action.START:
            assert not alive
            alive = True
        if action is Action.KILL:
            alive = False
            life.step(now, exit_code=-9, ready=False)
        assert alive == (life.state in ALIVE)
    assert life.state in ENDED


def test_nobody_takes_over_from_the_living_the_given_up_or_the_not_yet_started():
    unborn, alive, given_up = Lifecycle(POLICY, 0.0, lambda: 0.0), born(), born()
    look(given_up, 1.0, exit_code=2)
    assert not any(life.died for life in (unborn, alive, given_up))
    alive.take(1.0, Event.TAKEN_OVER)
    given_up.take(1.0, Event.TAKEN_OVER)
    assert (alive.state, given_up.state) == (State.STARTING, State.FAILED)


def test_taking_over_does_not_make_a_child_immortal():
    life = born()
    for now in (1.0, 2.0):
        look(life, now, ready=True)
        look(life, now, exit_code=-9)
        life.take(now, Event.TAKEN_OVER)
    look(life, 3.0, exit_code=-9)
    assert life.state is State.FAILED


def test_a_standby_that_went_has_a_successor_later_and_has_not_died():
    life = born()
    look(life, 1.0, ready=True)
    life.lent(2.0)
    assert (life.state, life.died) == (State.BACKING_OFF, False)
    assert look(life, 2.0 + POLICY.lent_delay - 0.01) is Action.NOTHING
    assert look(life, 2.0 + POLICY.lent_delay) is Action.START
    assert life.restarts == 0


def test_one_that_reads_a_large_state_as_it_starts_is_not_late():
    life = born()
    for now in range(1, 200):
        life.progressed = float(now)
        assert look(life, float(now)) is Action.NOTHING
    assert look(life, 199.0 + POLICY.start_timeout - 0.1) is Action.NOTHING
    assert look(life, 199.0 + POLICY.start_timeout) is Action.KILL


# What a child said in the end is repeated at its next death only where it is something else.


def test_a_reason_is_told_once_until_it_changes(tmp_path):
    said = {"a": "no weights", "b": "no weights"}
    supervisor = SimpleNamespace(_words={})

    def because(name, **how):
        plan = SimpleNamespace(name=name)
        child = SimpleNamespace(plan=plan, log=tmp_path / name, last_words=lambda: said[name])
        return Supervisor._because(supervisor, child, **how)

    assert "a: no weights" in because("a")
    assert because("a") == " (as before)"
    assert "a: no weights" in because("a", again=True), "as it is given up"
    assert "b: no weights" in because("b")
    said["a"] = "no memory"
    assert "a: no memory" in because("a")
    said["a"] = ""
    assert because("a") == f" (its log is {tmp_path / 'a'})"
