"""The contest of variants: every query is answered once, hosts are paid for, what is ordered is there."""

import pytest

from benchmarks.infaas.contest import BEGIN, LONG, NAMES, RIVALS, SETTLE, SHARES, Contest, arrivals
from benchmarks.infaas.family import HOSTS, of
from benchmarks.infaas.serving import Serving
from spillway.topology.variant_sections import HostKind
from spillway.topology.variants.controller import Controller
from spillway.topology.variants.hosts import Fleet
from spillway.topology.variants.needs import Needs
from spillway.topology.variants.scaling import PUBLISHED

MODEL = "ResNet50"
CPU, NEURON, TRT1, TRT8 = of(MODEL)[:4]
NEEDS = {MODEL: Needs("classification", 0.3, model=MODEL)}
ONE = HostKind(most=1, price=3.6, has={**HOSTS["p3"].has, **HOSTS["inf1"].has})
RISE = [n / 30 for n in range(30 * 15)] + [15 + n / 4 for n in range(4 * 15)]


def of_one(times):
    return [(time, MODEL) for time in times]


def static(variant, count, kind=ONE, hosts=1):
    fleet = Fleet({"one": kind}, {"one": hosts})
    assert fleet.place(0.0, variant, count) == count
    return Serving([variant], {variant.name: count}, NEEDS, fleet)


def scaled(**how):
    fleet, variants = Fleet({"one": ONE}, {"one": 1}), of(MODEL)
    controller = Controller(variants, fleet, 2, **({"settle": SETTLE} | how))
    return Serving(variants, {variants[0].name: 1}, NEEDS, fleet, controller)


def answered(serving, since=0.0):
    return sum(arrival + latency >= since for arrival, latency, _ in serving.done)


def test_workers_that_stay_answer_every_query_once_and_their_hosts_are_paid_for_all_of_the_time():
    serving = static(CPU, 2)
    evenly = of_one(n / 8 for n in range(8 * 20))
    found = serving.serve(evenly, 30.0, 10.0)
    assert found.misses == 0
    assert found.cost == pytest.approx(20 * 3.6 / 3600)
    assert sorted((arrival, model) for arrival, _, model in serving.done) == evenly
    assert min(latency for _, latency, _ in serving.done) == pytest.approx(CPU.latency)


def test_a_batch_takes_only_what_can_be_in_time():
    serving = static(CPU, 2)
    found = serving.serve(of_one(n / 50 for n in range(1500)), 30.0, 5.0)
    assert all(latency <= 0.3 + 1e-9 for _, latency, _ in serving.done)
    assert found.misses == pytest.approx(1 - 2 * CPU.rate / 50, rel=0.05)


@pytest.mark.parametrize("how", [{}, {"weights": PUBLISHED, "settle": 0.0}, {"vertical": False}])
def test_every_query_is_answered_or_dropped_once_and_nobody_is_left_over(how):
    serving, trace = scaled(**how), of_one(RISE)
    serving.serve(trace, 200.0, 0.0)
    assert sorted([(arrival, model) for arrival, _, model in serving.done] + serving.dropped) == trace
    for lane in serving.lanes.values():
        assert lane.depth == 0
        assert lane.workers == len(lane.staff)
        assert len(lane.staff) == sum(serving.fleet.on(host).get(lane.variant.name, 0) for host in serving.fleet.hosts)
    assert all(each == pytest.approx(0.0, abs=1e-9) for each in serving.shares.values())


def test_as_published_a_rise_of_the_load_is_upgraded_and_comes_down_again():
    serving, most = scaled(weights=PUBLISHED, settle=0.0), []
    rising = of_one([5 + n / 80 for n in range(80 * 20)] + [25 + n / 2 for n in range(2 * 25)])
    for second in range(60):
        serving.plan(second + 0.5, lambda _now: most.append(serving.lanes[NEURON.name].workers))
    serving.serve(rising, 60.0, 0.0)
    assert max(most) >= 1
    assert {lane.variant.hardware for lane in serving.lanes.values() if lane.workers} == {"cpu"}


def test_what_knows_of_waits_misses_less_than_as_published():
    trace = [(at, MODEL) for at, _ in arrivals("wiki-like", 4, 4.01, 120, 0)]
    published, ours = (scaled(**how).serve(trace, 120.0, 30.0) for how in ({"weights": PUBLISHED, "settle": 0.0}, {}))
    assert ours.misses < 0.05 < published.misses


def test_workers_on_one_gpu_slow_each_other_when_it_is_full_and_not_on_two():
    flood = of_one(n / 2000 for n in range(2000 * 2))

    def most(serving):
        serving.serve(flood, 2.0, 1.0)
        return answered(serving, since=1.0)

    one = most(static(TRT8, 1))
    assert most(static(TRT8, 2)) / one == pytest.approx(1.05 / 0.8, rel=0.05)  # 1,050/s are all that a GPU does
    alone = TRT8.model_copy(update={"units": 1.0})
    assert most(static(alone, 2, HOSTS["p3"], 2)) / one == pytest.approx(2.0, rel=0.05)
    assert most(static(TRT1, 2)) / most(static(TRT1, 1)) == pytest.approx(2.0, rel=0.05)


def test_all_systems_serve_all_models_and_pay_for_their_hosts():
    trace = arrivals("tweet-like", 0.5, 50, 60, 0)
    cost = {}
    for name, make in Contest(60).systems().items():
        serving = make(trace)
        found = serving.serve(trace, 60.0, 30.0)
        assert found.misses < 0.5, name
        assert answered(serving) > 0.5 * len(trace), name
        cost[name] = found.cost * 3600 / 30
    prices = {
        hosts: sum(HOSTS[kind].price * count for kind, count in mine.items())
        for hosts, mine in (("begin", BEGIN), ("rivals", RIVALS))
    }
    assert cost["sm+"] == pytest.approx(prices["rivals"])
    assert cost["best static in hindsight"] < prices["begin"]


def test_the_best_static_in_hindsight_misses_next_to_nothing():
    trace = arrivals("wiki-like", 1, 100, 60, 0)
    assert Contest(60).systems()["best static in hindsight"](trace).serve(trace, 60.0, 30.0).misses < 0.01


def test_a_slower_family_takes_as_many_times_as_long():
    fast, slow = (Contest(60, times).systems()["infaas"]([]) for times in (1.0, 10.0))
    for name, lane in slow.lanes.items():
        assert lane.variant.latency == pytest.approx(10 * fast.lanes[name].variant.latency)
        assert lane.variant.load == fast.lanes[name].variant.load
    assert slow.needs[MODEL].latency == pytest.approx(10 * fast.needs[MODEL].latency)


def test_four_of_the_models_have_four_fifths_of_the_load():
    assert sum(SHARES[:4]) / sum(SHARES) == pytest.approx(0.8, abs=0.005)
    assert len(NAMES) == 22
    assert [len(arrivals(shape, 10, 1000, seconds, 0)) > 50_000 for shape, seconds in LONG.items()] == [True, True]
