"""The contest of variants: every query is answered once, workers are paid for, what is ordered is there."""

import math
from collections import Counter

import pytest

from benchmarks.infaas.contest import (
    CPU,
    LOADS,
    MODEL,
    NEURON,
    ONE,
    SHARES,
    TRT1,
    TRT8,
    Setting,
    arrivals,
    many_models,
    one_model,
    two_models,
)
from benchmarks.infaas.family import HOSTS
from benchmarks.shapes import SHAPES
from spillway.topology.variants.needs import Needs

NEEDS = {MODEL: Needs("classification", 0.3, model=MODEL)}
SYSTEMS = one_model(0.3)


def of_one(times):
    return [(time, MODEL) for time in times]


def static(variant, count):
    return Setting(NEEDS, {"one": ONE}, {"one": 1}).fixed({variant: count})


def test_workers_that_stay_are_paid_for_all_of_the_time_and_answer_every_query_once():
    serving = static(CPU, 2)
    evenly = of_one(n / 8 for n in range(8 * 20))
    found = serving.serve(evenly, 30.0, 10.0)
    assert (found.queries, len(found.done), found.in_time) == (80, 80, 80)
    assert found.answered == 81  # one was under way when it began
    assert found.bill["variants"] == pytest.approx(20 * 2 * CPU.price)
    assert sorted((arrival, model) for arrival, _, model in serving.done) == evenly
    assert min(latency for _, latency, _ in serving.done) == pytest.approx(CPU.latency)


def test_more_than_the_workers_can_do_is_late():
    found = static(CPU, 2).serve(of_one(n / 50 for n in range(1500)), 30.0, 5.0, "naive")
    assert found.misses == 1
    assert found.answered < 400
    never = static(CPU, 1).serve(of_one(n / 100 for n in range(1000)), 10.0, 5.0, "naive")
    assert (len(never.done), never.p99(MODEL)) == (0, math.inf)


def test_a_batch_takes_only_what_can_be_in_time():
    found = static(CPU, 2).serve(of_one(n / 50 for n in range(1500)), 30.0, 5.0)
    assert found.in_time == len(found.done)
    assert found.in_time > 0.95 * 25 * 2 * CPU.rate


@pytest.mark.parametrize("name", sorted(SYSTEMS.keys() - {"best static in hindsight"}))
def test_every_query_is_answered_or_dropped_once_and_nobody_is_left_over(name):
    trace = of_one([n / 30 for n in range(30 * 15)] + [15 + n / 4 for n in range(4 * 15)])
    serving = SYSTEMS[name](trace)
    serving.serve(trace, 200.0, 0.0)
    assert sorted([(arrival, model) for arrival, _, model in serving.done] + serving.dropped) == trace
    for lane in serving.lanes.values():
        assert not len(lane.queue)
        assert lane.ready == lane.paid
    placed = Counter(serving.where[each] for lane in serving.lanes.values() for each in lane.idle)
    assert placed == {host: sum(serving.fleet.on(host).values()) for host in serving.fleet.hosts}
    assert all(each == pytest.approx(0.0, abs=1e-9) for each in serving.shares.values())


def test_as_published_a_rise_of_the_load_is_upgraded_and_comes_down_again():
    rising = of_one([5 + n / 80 for n in range(80 * 20)] + [25 + n / 2 for n in range(2 * 25)])
    serving = SYSTEMS["infaas, as published"](rising)
    serving.serve(rising, 60.0, 0.0)
    assert serving.most[NEURON.name] >= 1
    assert {lane.variant.hardware for lane in serving.lanes.values() if lane.ready} == {"cpu"}


def test_what_knows_of_waits_misses_less_than_as_published():
    trace = arrivals([4.0] * 120, {MODEL: 1.0}, 0)
    published, ours = (SYSTEMS[name](trace).serve(trace, 120.0, 30.0) for name in ("infaas, as published", "infaas"))
    assert ours.misses < 0.05 < published.misses


def test_the_best_static_in_hindsight_is_the_cheapest_that_serves_the_trace():
    trace = arrivals([4.0] * 60, {MODEL: 1.0}, 0)
    assert set(SYSTEMS["best static in hindsight"](trace).lanes) == {NEURON.name}


def test_workers_on_one_gpu_slow_each_other_when_it_is_full_and_not_on_two():
    flood = of_one(n / 2000 for n in range(2000 * 4))

    def answered(serving):
        return serving.serve(flood, 4.0, 1.0).answered

    one = answered(static(TRT8, 1))
    assert answered(static(TRT8, 2)) / one == pytest.approx(1.05 / 0.8, rel=0.05)  # 1,050/s are all that a GPU does
    alone = TRT8.model_copy(update={"units": 1.0})
    two = Setting(NEEDS, HOSTS, {"p3": 2}).fixed({alone: 2})
    assert answered(two) / one == pytest.approx(2.0, rel=0.05)
    assert answered(static(TRT1, 2)) / answered(static(TRT1, 1)) == pytest.approx(2.0, rel=0.05)


def test_all_systems_serve_all_models_and_pay_for_their_hosts():
    rates = [each / 20 for each in SHAPES["tweet-like"].between(10, 1000, 60, 0)]
    trace = arrivals(rates, SHARES, 0)
    for name, make in many_models(60).items():
        found = make(trace).serve(trace, 60.0, 30.0)
        assert len(found.done) > 0.5 * found.queries, name
        assert found.bill["hosts"] > 0
        if name in {"clipper+", "sm+"}:
            assert found.bill["hosts"] == pytest.approx(30 * (5 * 0.384 + 7 * 3.06) / 3600)


def test_two_models_share_a_gpu_until_another_is_started():
    trace = arrivals([50.0] * 60, {"Inception-ResNetV2": 0.8, "MobileNetV1": 0.2}, 0)
    hosts = {name: make(trace).serve(trace, 60.0, 30.0).bill["hosts"] for name, make in two_models().items()}
    assert hosts["infaas"] <= hosts["clipper+"] == pytest.approx(30 * 2 * 3.06 / 3600)


def test_loads_are_as_they_are_called():
    counts = [sum(rate(float(second)) for second in range(210)) / 210 for rate in LOADS.values()]
    assert counts == [pytest.approx(each, rel=0.1) for each in (4, 25.7, 675)]
    assert sum(sorted(SHARES.values())[-4:]) == pytest.approx(0.8, abs=0.005)
