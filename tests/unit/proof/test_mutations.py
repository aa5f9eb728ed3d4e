"""The oracle sees each fault that is planted in a driver, by a schedule that passes without it."""

import pytest

from spillway.agents.proof.oracle import judged
from tests.unit.proof.mutations import MOST, MUTATIONS, case_of, found, pins

PINS = pins()


def test_every_mutation_has_a_pin():
    assert PINS.keys() == MUTATIONS.keys()
    assert max(PINS.values()) < MOST


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_oracle_sees_a_fault_in_a_driver(name):
    seed = PINS[name]
    assert found(name, seed), f"seed {seed} no longer shows it: search anew (python -m tests.unit.proof.mutations)"
    assert judged(case_of(name, seed), seed)[1] == [], f"seed {seed} fails without the fault, too"
