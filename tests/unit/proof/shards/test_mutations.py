"""The oracle sees each guard broken: a schedule that passes with the real parts fails with the mutated one."""

from functools import partial

import pytest

from spillway.agents.cli.commands.prove import limited
from spillway.agents.proof.shards.oracle import Judge, prove
from spillway.agents.proof.shards.play import Play
from tests.unit.proof.shards.mutations import MUTATIONS, PINS

_FOUND = {}


def without_it(schedule, seed):
    """Return what the oracle says of a schedule as it is, which several mutations may be shown by."""
    key = repr(schedule), seed
    if key not in _FOUND:
        _FOUND[key] = Judge(Play(schedule, seed).run()).judge()
    return _FOUND[key]


def test_every_mutation_has_a_pin():
    assert PINS.keys() == MUTATIONS.keys()


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_oracle_sees_a_guard_broken(name):
    mutation, seed = MUTATIONS[name], PINS[name]
    found = mutation.caught(seed)
    assert found, f"seed {seed} no longer shows it: search anew (python -m tests.unit.proof.shards.mutations)"
    assert not any(each.startswith(("(e) TypeError", "(e) AttributeError")) for each in found), found
    assert without_it(mutation.schedule(seed), seed) == [], f"seed {seed} fails without the mutation, too"


@pytest.mark.nightly
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_pin_is_the_first_schedule_that_shows_it(name):
    assert MUTATIONS[name].first_catch() == PINS[name]


@pytest.mark.parametrize("name", ["crashes", "stays in one event", "never comes to rest"])
def test_a_schedule_that_crashes_or_does_not_end_is_named_and_stops_no_other(name, monkeypatch):
    def broken(play):
        if name == "crashes":
            raise KeyError("broken")
        while name == "stays in one event":
            pass
        play.at(play.now, partial(broken, play))

    def run(play):
        if play.seed == 1:
            play.at(play.now, partial(broken, play))
        return whole(play)

    whole = Play.run
    monkeypatch.setattr(Play, "run", run)
    proof = prove(range(3), limited=partial(limited, 1.0))
    assert proof.schedules == 3
    assert list(proof.failed) == [1]
    assert ("KeyError" if name == "crashes" else "has not ended") in proof.failed[1][0]
