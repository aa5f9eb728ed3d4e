"""The oracle sees each guard broken: a schedule that passes with the real parts fails with the mutated one."""

import pytest

from agents.sim.faults.oracle import problems
from agents.sim.faults.play import run
from tests.unit.faults.mutations import MUTATIONS, PINS


def test_every_mutation_has_a_pin():
    assert PINS.keys() == MUTATIONS.keys()


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_oracle_sees_a_guard_broken(name):
    mutation, seed = MUTATIONS[name], PINS[name]
    assert mutation.caught(seed), f"seed {seed} no longer shows it: search anew (python -m tests.unit.faults.mutations)"
    assert problems(run(mutation.schedule(seed), seed)) == [], f"seed {seed} fails without the mutation, too"


@pytest.mark.nightly
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_pin_is_the_first_schedule_that_shows_it(name):
    assert MUTATIONS[name].first_catch() == PINS[name]
