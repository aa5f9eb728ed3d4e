"""The model that proposes sizes: what it may spend and use, and what it makes faster."""

import numpy as np
import pytest

from spillway.topology.capacity.forecast import Forecast
from spillway.topology.capacity.hardware import Option
from spillway.topology.capacity.planner import Lane, Planner

CPU = Option("cpu", 1.0, tuple(0.1 * n for n in range(1, 5)), 5.0, emulated=True)
GPU = Option("gpu", 8.0, tuple(0.01 + 0.001 * n for n in range(1, 33)), 5.0, emulated=True)


def forecast(*lanes, counts=None):
    arrivals = np.cumsum(np.random.default_rng(0).exponential(0.02, 2_000))
    return Forecast(Planner(lanes, counts or {}, lambda *_: None, arrivals, 1.0))


def chain(count, share=1.0):
    return [Lane(f"s{n}", share, (GPU, CPU), after=(f"s{n - 1}",) if n else ()) for n in range(count)]


def cost(config):
    return sum(choice.workers * choice.option.price for choice in config.values())


def test_sizes_cost_less_than_the_budget_and_with_more_of_it_they_are_not_slower():
    made = forecast(*chain(3))
    low, high = made.costs
    budgets = np.geomspace(low * 1.01, high, 12)
    found = [made.soonest(budget) for budget in budgets]
    assert all(cost(config) < budget for (_, config), budget in zip(found, budgets, strict=True))
    seconds = [each for each, _ in found]
    assert seconds == sorted(seconds, reverse=True)
    assert made.soonest(low) is None


def test_the_hardware_is_what_is_asked_for_and_no_more_than_there_is():
    made = forecast(*chain(2), counts={"gpu": 1})
    _, config = made.soonest(1e9, {"s0": "cpu", "s1": "gpu"})
    assert [choice.option.kind for choice in config.values()] == ["cpu", "gpu"]
    assert made.soonest(1e9, {"s0": "gpu", "s1": "gpu"}) is None
    _, config = made.soonest(1e9)
    assert sum(choice.workers for choice in config.values() if choice.option.kind == "gpu") <= 1


def test_what_is_not_on_a_longest_path_stays_cheap():
    beside, slower = Lane("b", 1.0, (GPU,), after=("a",)), Lane("c", 1.0, (CPU,), after=("a",))
    _, config = forecast(Lane("a", 1.0, (GPU,)), beside, slower).soonest(1e9)
    assert config["b"].workers == 1 < config["a"].workers


def test_a_stage_that_few_queries_visit_needs_fewer_workers():
    (all_of_them,), (few,) = chain(1), chain(1, 0.1)
    kinds = {"s0": "cpu"}
    workers = [forecast(lane).soonest(9.0, kinds) for lane in (all_of_them, few)]
    assert workers[0][0] > workers[1][0]


def test_queries_that_come_evenly_and_find_a_worker_do_not_wait():
    even = Planner([Lane("s0", 1.0, (GPU,))], {}, lambda *_: None, np.arange(0.0, 60.0, 0.1), 1.0)
    seconds, config = Forecast(even).soonest(1e9)
    assert seconds == pytest.approx(GPU.durations[0], rel=0.2)
    assert config["s0"].batch == 1
