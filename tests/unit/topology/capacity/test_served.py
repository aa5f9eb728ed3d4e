"""What a plan makes of a pipeline that is served by it."""

import pytest

from spillway.agents.cli.commands.serve import _tight
from spillway.lineage.errors import SpecError
from spillway.topology.capacity.plan import Plan
from spillway.topology.capacity.room import RECENT
from spillway.topology.capacity.served import basis_of, file_digest, planned
from spillway.topology.load import parse

FILE = (
    "{name: p, slo: 1, stages: [{name: a, emulated: {alpha: 10ms, beta: 1ms}}, {name: b, after: a, model: 'm:M'},"
    "{name: c, after: b, model: 'm:M', workers: {count: 4, fronts: 2}}]}"
)
PIPELINE = parse(FILE)
STAGE = {"hardware": "k80", "runs": "emulated", "count": 3, "batch": 4, "price": 1.0, "load": 5.0, "share": 0.5}
STAGE |= {"throughput": 40.0, "ratio": 0.4, "takes": {1: 0.05, 4: 0.1}}


def plan(**changes):
    facts = {"name": "t", "queries": 1000, "seconds": 10.0, "rate": 100.0, "service_time": 0.5}
    told = {"spillway-plan": 1, "pipeline": "p", "digest": PIPELINE.digest, "slo": 1.0, "cost": 0.1, "p99": 0.5}
    told |= {"misses": 0.0, "trace": facts, "envelope": [[0.5, 60], [1.0, 110]], "limits": {"k80": 8}}
    told |= {"stages": {"a": STAGE, "b": {**STAGE, "hardware": "cpu", "runs": "core", "batch": 2}}, "kept": {"c": 4}}
    return Plan.model_validate({**told, **changes})


def test_it_has_the_plans_workers_batches_and_emulated_hardware_and_keeps_the_rest():
    served = planned(PIPELINE, plan())
    a, b, c = served.spec.stages
    assert (a.worker_count, a.batching.most, b.worker_count, b.batching.most) == (3, 4, 3, 2)
    assert [a.emulated.duration(1), served.durations["a"](4), a.emulated.load] == [0.05, 0.1, 5.0]
    assert (b.model, c) == (PIPELINE.spec.stage("b").model, PIPELINE.spec.stage("c"))
    other = planned(PIPELINE, plan(stages={"a": {**STAGE, "count": 4}}))
    assert len({served.digest, other.digest, PIPELINE.digest}) == 3
    assert {file_digest(each.digest) for each in (served, other, PIPELINE)} == {PIPELINE.digest}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pipeline": "q"}, "the plan is for pipeline 'q', not of 'p'"),
        ({"digest": "d"}, "another version of pipeline.yaml: plan this file again with 'spillway plan provision'"),
        ({"stages": {"aa": STAGE}}, "the plan has a stage 'aa'"),
        ({"stages": {"c": STAGE}}, "stage 'c' is sized by the pipeline file, not by the plan"),
        ({"stages": {"b": STAGE}}, "stage 'b' has a model, but its hardware in the plan, k80, is emulated"),
    ],
)
def test_a_plan_of_something_else_is_refused(changes, said):
    with pytest.raises(SpecError, match=said):
        planned(PIPELINE, plan(**changes))


def test_a_tuner_goes_by_what_the_plan_says():
    basis = basis_of(plan())
    assert basis.rho("a") == pytest.approx(100 * 0.5 / (3 * 40))
    each = 0.5 / (3 * 40)  # seconds that three workers take for a query's share
    assert basis.wait("a") == pytest.approx(max(60 * each - 0.5, 110 * each - 1.0))
    assert (basis.limits, basis.stages["b"].hardware) == ({"k80": 8}, "cpu")


@pytest.mark.parametrize(
    ("batch", "policy", "told"),
    [(64, None, True), (64, "pard:quantile=.2", True), (64, RECENT, False), (64, "spillway", False), (4, None, False)],
)
def test_serve_tells_of_a_plan_that_leaves_the_policy_in_force_no_room(batch, policy, told):
    large = {**STAGE, "batch": batch, "throughput": batch / (0.05 * batch), "takes": {1: 0.05, batch: 0.05 * batch}}
    said = _tight(PIPELINE, plan(stages={"a": large}, p99=0.6), policy)
    assert (said is not None) == told
    if said is not None:
        assert said.startswith("planned batches take 3.15 s more along a path than those that form at this load")
        assert "never waits would take 3.65 s, and one of the slowest hundredth 3.75 s, of an SLO of 1 s" in said
        assert said.endswith(f"serve with '--policy {RECENT}'")
