"""The contest of variants: every query is answered once, workers are paid for, and what is ordered is there."""

import pytest

from benchmarks.infaas.command import CPU, LOADS, NEEDS, NEURON, SYSTEMS, arrivals
from benchmarks.infaas.serving import Serving


def test_workers_that_stay_are_paid_for_all_of_the_time_and_answer_every_query_once():
    serving = Serving((CPU,), {CPU.name: 2}, NEEDS, None)
    evenly = [n / 8 for n in range(8 * 20)]
    found = serving.serve(evenly, 30.0, 10.0)
    assert (found.queries, found.answered, found.in_time) == (80, 80, 80)
    assert found.cost == pytest.approx(20 * 2 * CPU.price, rel=0.02)
    assert sorted(arrival for arrival, _ in serving.done) == evenly
    assert min(latency for _, latency in serving.done) == pytest.approx(CPU.latency)


def test_more_than_the_workers_can_do_is_late():
    found = Serving((CPU,), {CPU.name: 2}, NEEDS, None).serve([n / 50 for n in range(1500)], 30.0, 5.0)
    assert found.misses == 1
    assert found.answered < 400


@pytest.mark.parametrize("name", ["infaas", "infaas without inferentia", "sm+ cpu"])
def test_what_is_scaled_answers_every_query_once(name):
    serving = SYSTEMS[name]()
    trace = [n / 30 for n in range(30 * 15)] + [15 + n / 4 for n in range(4 * 15)]
    found = serving.serve(trace, 200.0, 0.0)
    assert sorted(arrival for arrival, _ in serving.done) == trace
    assert found.answered == len(trace)
    for lane in serving.lanes.values():
        assert not lane.queue
        assert lane.ready == lane.paid
    assert {each: lane.ready for each, lane in serving.lanes.items() if lane.ready}


def test_a_rise_of_the_load_is_upgraded_and_comes_down_again():
    serving = SYSTEMS["infaas"]()
    rising = [5 + n / 80 for n in range(80 * 20)] + [25 + n / 2 for n in range(2 * 25)]
    found = serving.serve(rising, 60.0, 0.0)
    assert found.most[NEURON.name] >= 1
    assert {lane.variant.hardware for lane in serving.lanes.values() if lane.ready} == {"cpu"}


def test_loads_are_as_they_are_called():
    counts = {name: len(arrivals(rate, 0)) / 210 for name, rate in LOADS.items()}
    assert list(counts.values()) == [pytest.approx(each, rel=0.1) for each in (4, 25.7, 675)]
