"""The oracle sees each fault that is planted in a driver, by a schedule that passes without it."""

from functools import cache

import pytest

from tests.unit.proof.pipelines.mutations import MOST, MUTATIONS, found, pins, said, schedule_of

PINS = pins()
SAID = cache(said)  # of a schedule as it is, by which several mutations may be shown


def test_every_mutation_has_a_pin():
    assert PINS.keys() == MUTATIONS.keys()
    assert max(PINS.values()) < MOST


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_oracle_sees_a_fault_in_a_driver(name):
    seed = PINS[name]
    assert found(name, seed), (
        f"seed {seed} no longer shows it: search anew (python -m tests.unit.proof.pipelines.mutations)"
    )
    assert SAID(schedule_of(name), seed) == [], f"seed {seed} fails without the fault, too"
