"""The compiled loop gives every query the latency that the engine gives it, to the last bit."""

import random

import numpy as np
import pytest

from spillway.agents.sim.estimator import Estimator
from spillway.lineage.errors import SpecError
from spillway.lineage.metric_names import GATE
from spillway.topology.capacity.planner import Sizing
from spillway.topology.load import parse

pytest.importorskip("numba")


def random_pipeline(draw):
    """A pipeline of up to six stages: choices, joins, states, several fronts."""
    count = draw.randint(1, 6)
    stages = []
    for number in range(count):
        after = sorted(draw.sample(range(number), min(number, draw.choice([0, 1, 1, 1, 2, 3]))))
        front = draw.choice([1, 1, 1, 2, 3])
        stage = {
            "name": f"s{number}",
            "after": [f"s{each}" for each in after],
            "emulated": {"alpha": f"{draw.choice([0, 1, 2, 5])}ms", "beta": f"{draw.choice([1, 1, 2, 3])}ms"},
            "batching": {"size": draw.choice([1, 2, 3, 8])},
        }
        if draw.random() < 0.15:
            stage["state"] = {"kind": "keyed", "shards": front, "replication": "none"}
        else:
            stage["workers"] = {"count": front * draw.randint(1, 4), "fronts": front}
        if len(after) > 1:
            stage["join"] = {"mode": draw.choice(["all", "all", "any"])}
        stages.append(stage)
    followed = {name for stage in stages for name in stage["after"]}
    for stage in stages:
        if stage["name"] in followed and draw.random() < 0.4:
            stage["choose"] = "m:f"
    spec = {"name": "p", "slo": "10s", "stages": stages, "partitions": 6}
    if len({stage["name"] for stage in stages} - followed) > 1 or any("choose" in stage for stage in stages):
        spec["sinks"] = draw.choice(["all", "any"])
    return spec


def drawn(seed):
    import json

    draw = random.Random(seed)
    while True:
        try:
            return draw, parse(json.dumps(random_pipeline(draw)))
        except SpecError:  # a choice that could not reach a join, say
            continue


def both(seed):
    draw, pipeline = drawn(seed)
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(1 / draw.choice([50, 200, 800]), draw.randint(1, 400))
    due = np.cumsum(gaps) if draw.random() < 0.5 else np.round(np.cumsum(gaps), 3)  # with many ties
    hops = {}
    if draw.random() < 0.6:
        places = [*(stage.name for stage in pipeline.spec.stages), GATE]
        hops = {place: draw.choice([0, 0.001, 0.0013]) for place in places}
    sizes = {
        stage.name: Sizing(draw.randint(1, 6), draw.choice([1, 2, 5, 16]), lambda n: 0.001 * n + 0.0007)
        for stage in pipeline.spec.stages
        if stage.state is None and stage.fronts == 1 and draw.random() < 0.5
    }
    chosen = {}
    for stage in pipeline.spec.stages:
        if stage.choose is not None and draw.random() < 0.5:
            after = pipeline.graph.successors[stage.name]
            chosen[stage.name] = [draw.choice([None, (), after, after[:1]]) for _ in due]
    options = {"hops": hops, "seed": seed, "chosen": chosen}
    estimators = [Estimator(pipeline, due, **options, compiled=compiled) for compiled in (True, False)]
    latencies = [estimator(sizes) for estimator in estimators]
    slo = float(np.median(latencies[0]))
    late = int((latencies[0] > slo).sum())
    for estimator in estimators:  # it ends early where more are late, and only there
        assert estimator(sizes, slo, late) is not None
        assert late == 0 or estimator(sizes, slo, late - 1) is None
    return latencies


def check(seeds):
    for seed in seeds:
        kernel, engine = both(seed)
        assert not np.isnan(kernel).any(), seed
        np.testing.assert_array_equal(kernel, engine, err_msg=f"seed {seed}")


def test_the_kernel_equals_the_engine_on_random_pipelines():
    check(range(25))


@pytest.mark.nightly
def test_the_kernel_equals_the_engine_on_a_thousand_random_pipelines():
    check(range(25, 1_100))
