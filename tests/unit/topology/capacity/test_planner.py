"""What the planner promises, on random pipelines, catalogues and traces; the Estimator is the real one."""

import random
import statistics
from contextlib import suppress

import numpy as np
import pytest

from spillway.agents.sim.estimator import Estimator
from spillway.topology.capacity.hardware import Option
from spillway.topology.capacity.planner import Lane, NoPlanError, Planner
from spillway.topology.capacity.provisioning import first_sizes
from spillway.topology.capacity.search import beam, exact, greedy
from spillway.topology.load import parse

KINDS = {"slow": 1.0, "middle": 3.0, "fast": 8.0}


def pipeline_of(count, draw):
    stages = []
    for number in range(count):
        after = [f"s{number - 1}"] if number else []
        if number > 1 and draw.random() < 0.3:
            after = [f"s{number - 2}"]
        stages.append(f"  - {{name: s{number}, after: [{', '.join(after)}], emulated: {{beta: 1ms}}}}")
    sinks = "sinks: all\n" if any("s0" in stage for stage in stages[2:]) or count > 2 else ""
    return parse(f"name: p\nslo: 10s\n{sinks}stages:\n" + "\n".join(stages) + "\n")


def problem(seed, *, most=3, queries=1_500, bounded=True):
    draw = random.Random(seed)
    pipeline = pipeline_of(draw.randint(1, most), draw)
    options = {}
    for stage in pipeline.spec.stages:
        alpha, beta = draw.uniform(0.001, 0.02), draw.uniform(0.001, 0.01)
        largest, steps = draw.choice([1, 2, 4, 8, 48]), draw.random() < 0.5
        sizes = [
            1 << (n - 1).bit_length() if steps else n for n in range(1, largest + 1)
        ]  # that count, of batches of n
        mine = []
        for kind, price in KINDS.items():
            if mine and draw.random() < 0.3:
                continue
            speed = 1.0 if draw.random() < 0.2 else price ** draw.uniform(0.5, 1.3)
            durations = tuple((alpha + beta * n) / speed for n in sizes)
            mine.append(Option(kind, price * draw.uniform(0.9, 1.1), durations, 5.0, emulated=True))
        options[stage.name] = tuple(sorted(mine, key=lambda option: -option.price))
    rate = draw.choice([30, 100, 250])
    shape = draw.choice([0.25, 1, 4])
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.gamma(shape, 1 / (rate * shape), queries))
    estimator = Estimator(pipeline, arrivals, sizes=first_sizes(options), hops={"s0": draw.choice([0, 0.002])})
    lanes = [
        Lane(name, estimator.shares[name], each, parity=(2, 1) if draw.random() < 0.1 else None)
        for name, each in options.items()
    ]
    longest = sum(each[0].durations[0] for each in options.values())
    counts = {kind: draw.choice([None, 2, 5, 20]) for kind in KINDS} if bounded and draw.random() < 0.4 else {}
    return Planner(lanes, counts, estimator, estimator.due, longest * draw.choice([1.3, 2, 4, 8]))


def solved(seeds, **options):
    for seed in seeds:
        planner = problem(seed, **options)
        with suppress(NoPlanError):
            yield seed, planner, greedy(planner)


def smaller(planner, config):
    """Return the plans with a smaller batch of one stage that cost the same and keep the SLO."""
    plans = [
        {**config, name: choice._replace(batch=batch)}
        for name, choice in config.items()
        for batch in range(1, choice.batch)
    ]
    return [plan for plan in plans if planner.p99(plan) is not None]


def test_a_plan_keeps_the_slo_and_no_action_lowers_its_cost_or_smaller_batches_cost_the_same():
    pytest.importorskip("numba")
    plans = 0
    for seed, planner, found in solved(range(60)):
        plans += 1
        assert (found.latencies > planner.slo).sum() <= len(planner.arrivals) // 100, seed
        assert all(planner.left(found.config, kind) >= 0 for kind in KINDS), seed
        assert list(planner.savings(found.config)) == [], seed
        assert smaller(planner, found.config) == [], seed
        assert [step.cost for step in found.steps] == sorted((step.cost for step in found.steps), reverse=True)
        assert found.steps[-1].cost == found.cost == pytest.approx(planner.cost(found.config))
    assert plans > 30


def test_a_beam_is_never_dearer():
    pytest.importorskip("numba")
    cheaper = 0
    for seed, planner, found in solved(range(25), queries=600):
        wide = beam(planner)
        assert wide.cost <= found.cost * (1 + 1e-9), seed
        assert smaller(planner, wide.config) == [], seed
        cheaper += wide.cost < found.cost * (1 - 1e-9)
    assert cheaper > 0  # it is worth having


@pytest.mark.nightly
def test_the_gaps_of_greedy_and_beam_from_the_cheapest_plan(capsys):
    gaps, wide, optimal = [], [], 0
    for seed, planner, found in solved(range(1_000, 1_200), queries=600, bounded=False):
        best = exact(planner, found)
        assert best.cost <= found.cost * (1 + 1e-9), seed
        gaps.append(found.cost / best.cost - 1)
        wide.append(beam(planner).cost / best.cost - 1)
        if len(gaps) == 100:
            break
    with capsys.disabled():
        for name, each in (("greedy", gaps), ("beam", wide)):
            optimal = sum(gap < 1e-9 for gap in each)
            print(
                f"\n{name}: cheapest of all for {optimal} of {len(each)}; gap mean {statistics.mean(each):.1%}, "
                f"p90 {np.quantile(each, 0.9):.1%}, largest {max(each):.1%}"
            )
    assert max(wide) <= max(gaps) + 1e-9
