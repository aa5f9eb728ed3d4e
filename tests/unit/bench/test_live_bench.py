"""What `spillway bench live` makes of its runs: paths, arrivals, verdicts."""

import numpy as np
import pytest

from agents.bench.live import agrees, repeated, swapped
from agents.bench.live_cell import longest_path, sized
from lineage.message import StageTiming
from topology.load import load

DIAMOND = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}
APPLICATION = """\
name: app
slo: 400ms
stages:
  - {name: a, batch: 4, emulated: {alpha: 20ms, beta: 5ms}}
  - {name: b, batch: 2, after: a, emulated: {alpha: 5ms, beta: 5ms}}
"""


def timing(stage, queued, waited, executed):
    return StageTiming(stage, queued, waited, executed, 1)


def test_the_longest_path_counts_each_part_of_its_stages():
    timings = [timing("a", 1, 2, 4), timing("b", 0, 0, 8), timing("c", 16, 0, 0), timing("d", 0, 32, 0)]
    assert longest_path(timings, DIAMOND) == 7 + 16 + 32


def test_a_branch_that_was_not_taken_counts_nothing():
    assert longest_path([timing("a", 1, 0, 0), timing("b", 2, 0, 0), timing("d", 4, 0, 0)], DIAMOND) == 7


@pytest.mark.parametrize(
    ("lived", "simulated", "verdict"),
    [(0.010, 0.014, True), (0.010, 0.016, False), (0.11, 0.10, True), (0.13, 0.10, False), (0.0, 0.0, True)],
)
def test_rates_agree_within_a_fifth_or_half_a_point(lived, simulated, verdict):
    assert agrees(lived, simulated) is verdict


def cell(policy, live_drop, simulated_drop):
    return {"policy": policy, "live_drop": live_drop, "simulated_drop": simulated_drop}


def test_only_policies_that_differ_can_be_swapped():
    assert swapped([cell("one", 5.0, 4.0), cell("two", 4.0, 6.0)]) == [("one", "two")]
    assert swapped([cell("one", 4.1, 4.0), cell("two", 4.0, 4.2)]) == []
    assert swapped([cell("one", 3.0, 4.0), cell("two", 7.0, 6.0)]) == []


def test_a_trace_goes_on_over_and_over_at_the_rate_asked_for(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("second,requests\n0,100\n1,300\n2,200\n3,200\n")
    times = repeated(trace, 50.0, 30.0, seed=1)
    assert (np.diff(times) >= 0).all()
    assert times[-1] < 30
    assert len(times) == pytest.approx(1500, rel=0.1)


def test_an_application_gets_the_instances_that_its_load_wants(tmp_path):
    file = tmp_path / "app.yaml"
    file.write_text(APPLICATION)
    made = sized(file, "live-app", rate=100.0, headroom=1.5, folder=tmp_path)
    assert {stage.name: (stage.instances, stage.replicas) for stage in made.spec.stages} == {"a": (2, 1), "b": (2, 1)}
    assert made.spec.slo == load(file).spec.slo
