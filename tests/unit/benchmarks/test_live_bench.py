"""What `python -m benchmarks live` makes of its runs: hops, arrivals, verdicts."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.live import agrees, swapped
from benchmarks.live_cell import sized
from benchmarks.live_hops import Way, measured_hops
from spillway.lineage.message import DROPPED, PREDICTION, Outcome, StageTiming
from spillway.lineage.metric_names import GATE
from spillway.topology.load import load

APPLICATION = """\
name: app
slo: 400ms
stages:
  - {name: a, batching: {size: 4}, emulated: {alpha: 20ms, beta: 5ms}}
  - {name: b, batching: {size: 2}, after: a, emulated: {alpha: 5ms, beta: 5ms}}
"""


def timing(stage, queued, waited, executed):
    return StageTiming(stage, queued, waited, executed, 1)


def outcome(*timings, kind=PREDICTION):
    return Outcome(kind, stage="b", timings=list(timings))


def test_a_hop_is_what_the_topics_say_less_what_the_stage_says(tmp_path):
    file = tmp_path / "app.yaml"
    file.write_text(APPLICATION)
    ways = [
        Way(100.0, {"b": 100.1}, 100.2, {"a": 100.1, "b": 100.2}),
        Way(101.0, {"b": 101.2}, 101.2, {"a": 101.2}),  # dropped at b
        Way(109.0, {}, 109.1, {}),  # dropped at a
    ]
    outcomes = {
        0: outcome(timing("a", 0.01, 0.02, 0.04), timing("b", 0.0, 0.0, 0.05)),
        1: outcome(timing("a", 0.01, 0.02, 0.04), StageTiming("b", 0.02, 0.0, 0.0, 0), kind=DROPPED),
        2: outcome(StageTiming("a", 0.01, 0.0, 0.0, 0), kind=DROPPED),
    }
    due = np.array([0.0, 1.0, 9.0])
    result = SimpleNamespace(due=due, finished=due + 0.25)
    hops = measured_hops(ways, outcomes, result, load(file), {"a": 0.01, "b": 0.0})
    assert hops["a"] == pytest.approx([0.02, 0.12, 0.12])  # from when it was due
    assert hops["b"] == pytest.approx([0.05, 0.05, 0.05])
    assert hops[GATE] == pytest.approx([0.05, 0.05, 0.05])  # to when it was heard


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


def test_an_application_gets_the_instances_that_its_load_wants(tmp_path):
    file = tmp_path / "app.yaml"
    file.write_text(APPLICATION)
    made = sized(file, "live-app", rate=100.0, headroom=1.5, folder=tmp_path)
    assert {stage.name: (stage.workers.count, stage.fronts) for stage in made.spec.stages} == {"a": (2, 1), "b": (2, 1)}
    assert made.spec.slo == load(file).spec.slo
