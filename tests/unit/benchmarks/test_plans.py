"""The benchmark of plans: what it draws is the same each time, and what it is held beside keeps the SLO."""

import pytest

from benchmarks.plans.command import compared
from benchmarks.plans.drawn import SHAPES, drawn
from benchmarks.plans.reference import annealed

pytest.importorskip("numba")


def test_pipelines_are_of_all_shapes_and_sizes_and_the_same_for_a_seed():
    made = [drawn(seed, 200) for seed in range(40)]
    assert {each.name.split("-")[0] for each in made} == set(SHAPES)
    assert {len(each.options) for each in made} == {3, 4, 5, 6}
    again = drawn(7, 200)
    assert again.options == made[7].options
    assert (again.planned == made[7].planned).all()
    assert again.held_out[0] < again.planned[-1]  # both halves begin at 0


def test_the_reference_keeps_the_slo_and_its_part_of_the_estimates():
    of = drawn(2, 400)
    first, second = of.planner(of.planned), of.planner(of.planned)
    config = annealed(first, 1_500)
    assert first.p99(config) is not None
    assert annealed(second, 1_500) == config


def test_searches_and_the_reference_are_compared_on_one_pipeline():
    found = compared(drawn(2, 400))
    assert list(found) == ["shares", "greedy", "reference"]
    assert found["reference"].estimates > 5 * found["shares"].estimates
    assert found["shares"].cost <= 1.25 * found["reference"].cost
