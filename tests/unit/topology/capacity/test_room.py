"""Whether a plan's batches leave `pard` room: plans of random pipelines, simulated at their load."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

from spillway.agents.sim.estimator import Estimator
from spillway.agents.sim.simulation import simulate
from spillway.lineage.metric_names import GATE
from spillway.topology.capacity.hardware import Catalogue, Option
from spillway.topology.capacity.planner import NoPlanError, p99_of
from spillway.topology.capacity.provisioning import Provisioning, first_sizes
from spillway.topology.capacity.room import PLANNED, RECENT, policy_for, remark
from spillway.topology.load import parse

KINDS = Catalogue.model_validate({"spillway-hardware": 1, "kinds": {"k80": {"price": 1, "runs": "emulated"}}})


def provisioning(seed, queries=2_000):
    """Return what plans are made of, and an SLO: one to three stages, whose batches of many cost little more."""
    draw = random.Random(seed)
    count = draw.randint(1, 3)
    after = ["", *(f", after: s{number - draw.randint(1, min(number, 2))}" for number in range(1, count))]
    stages = "\n".join(f"  - {{name: s{number}{each}, emulated: {{beta: 1ms}}}}" for number, each in enumerate(after))
    pipeline = parse(f"name: p\nslo: 10s\nsinks: all\nstages:\n{stages}\n")
    options = {}
    for stage in pipeline.spec.stages:
        alpha, beta = draw.uniform(0.01, 0.04), draw.uniform(0.0005, 0.006)
        durations = tuple(alpha + beta * size for size in range(1, draw.choice([8, 16, 32, 64]) + 1))
        options[stage.name] = (Option("k80", 1.0, durations, 5.0, emulated=True),)
    rate, shape = draw.choice([50, 150, 400]), draw.choice([0.25, 1, 4])
    arrivals = np.cumsum(np.random.default_rng(seed).gamma(shape, 1 / (rate * shape), queries))
    estimator = Estimator(pipeline, arrivals, sizes=first_sizes(options), hops={"s0": 0.002, GATE: 0.002})
    made = Provisioning(pipeline, KINDS, options, estimator, estimator.shares, estimator.due, "t")
    shortest = sum(each[0].durations[0] for each in options.values())
    return made, shortest * draw.choice([1.5, 2, 3, 4])


def fuller(made, plan, draw):
    """Return the plan with larger batches; None where they do not keep the SLO."""
    stages = {}
    for name, stage in plan.stages.items():
        option = made.options[name][0]
        batch = min(option.largest, stage.batch * draw.choice([1, 2, 4, 8, 16]))
        takes = {size: option.duration(size) for size in {1, batch}}
        change = {"batch": batch, "throughput": option.throughput(batch), "takes": takes}
        stages[name] = stage.model_copy(update=change)
    sizes = {name: SimpleNamespace(workers=each.count, batch=each.batch, duration=made.options[name][0].duration)
             for name, each in stages.items()}  # fmt: skip
    latencies = made.estimate(sizes, plan.slo, len(made.arrivals) // 100)
    return None if latencies is None else plan.model_copy(update={"stages": stages, "p99": p99_of(latencies)})


def lost(made, plan, policy):
    """Return the share of the trace's queries that are dropped or late."""
    result = simulate(
        made.pipeline,
        made.arrivals,
        workers=[each.count for each in plan.stages.values()],
        batches={name: each.batch for name, each in plan.stages.items()},
        durations={name: each[0].duration for name, each in made.options.items()},
        hops={place: np.full(len(made.arrivals), made.estimate._hops[place]) for place in (*plan.stages, GATE)},
        slo=plan.slo,
        policy=policy,
    )
    return 1 - result.good / len(made.arrivals)


@pytest.mark.parametrize("seeds", [20, pytest.param(60, marks=pytest.mark.nightly)])
def test_a_plan_at_its_load_loses_few_queries_under_the_policy_that_is_named(seeds):
    pytest.importorskip("numba")
    named = []
    for seed in range(seeds):
        made, slo = provisioning(seed)
        try:
            plan = made.plan(slo)
        except NoPlanError:
            continue
        spec = made.pipeline.spec.model_copy(update={"slo": slo})
        for each in (plan, fuller(made, plan, random.Random(seed))):
            if each is None:
                continue
            policy = policy_for(each, spec)
            named.append(policy)
            assert lost(made, each, policy) < 0.05, seed
            full = max(stage.batch / stage.throughput for stage in each.stages.values())
            if full > slo:
                assert lost(made, each, PLANNED) > 0.9, seed
        assert (remark(plan, spec) in plan.remarks) == (policy_for(plan, spec) == RECENT)
    assert min(named.count(PLANNED), named.count(RECENT)) > seeds // 6
