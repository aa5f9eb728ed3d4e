"""What messages take on their way belongs to the estimate of what is still before a request."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

from agents.core.estimates import outlook
from agents.core.estimates.outlook import Outlook
from agents.core.estimates.transfer import Transfer
from agents.core.policy import StageFacts, StageState, StageView
from agents.sim.simulation import simulate
from topology.load import load

CHAIN = {"a": ("b",), "b": ("c",), "c": ()}
FACTS = {name: StageFacts(4, lambda _n: 0.05, 1) for name in CHAIN}


def heard(**transfers):
    made = Outlook(StageView("a", slo=1.0, facts=FACTS, successors=CHAIN), 0.1, 100)
    made.hear(1.0, {stage: [StageState(stage, 0, 1.0, transfer=seconds)] for stage, seconds in transfers.items()})
    return made


def test_the_ways_into_all_later_stages_and_through_the_gate_add_up():
    later = heard(a=0.5, b=0.01, c=0.02, gate=0.04).later("a")
    assert later.transfers == pytest.approx(0.07)
    assert later.total == pytest.approx(0.07 + later.queueing + later.execution + later.waits)


def test_behind_the_last_stage_there_is_still_the_gate():
    assert heard(c=0.02, gate=0.04).later("c").total == pytest.approx(0.04)


def test_a_stage_counts_with_the_mean_of_its_replicas():
    made = Outlook(StageView("a", slo=1.0, facts=FACTS, successors=CHAIN), 0.1, 100)
    states = [StageState("c", replica, 1.0, transfer=seconds) for replica, seconds in enumerate((0.01, 0.03))]
    made.hear(1.0, {"c": states})
    assert made.later("b").transfers == pytest.approx(0.02)


def test_the_mean_is_of_what_is_new_smoothed_and_bounded():
    way = Transfer()
    way.hear(0.4, 10)
    assert way.seconds == pytest.approx(0.04)
    way.hear(0.4 + 1.2, 20)  # .12 each
    assert way.seconds == pytest.approx(0.08)
    way.hear(1.6, 20)
    assert way.seconds == pytest.approx(0.08)
    way.hear(1.6 + 3600.0, 21)  # after an outage
    assert way.seconds == pytest.approx(0.54)
    way.hear(0.0, 22)  # a clock that was set back
    assert way.seconds == pytest.approx(0.27)


PIPELINE = """\
name: way
slo: 400ms
stages:
  - {name: a, batch: 4, instances: 2, emulated: {alpha: 20ms, beta: 10ms}}
  - {name: b, batch: 4, instances: 2, after: a, emulated: {alpha: 20ms, beta: 10ms}}
  - {name: c, batch: 4, instances: 2, after: b, emulated: {alpha: 20ms, beta: 10ms}}
"""


def dropped(policy="pard", hop=0.02):
    """The drop rate of an overload with hops of 20 ms."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "way.yaml"
        file.write_text(PIPELINE)
        arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / 160.0, 6_000))
        return simulate(load(file), arrivals, dispatch="shared", policy=policy, hop_delay=hop).report("way")


def test_an_estimate_that_leaves_the_ways_out_wastes_work(monkeypatch):
    """Requests served at the edge of their deadlines would be dropped late, or be late."""
    with_ways = dropped()
    monkeypatch.setattr(outlook.Outlook, "transfers", lambda _self, _path: 0.0)
    without = dropped()
    assert with_ways.drop_rate < 0.9 * without.drop_rate
    assert with_ways.invalid_rate < 0.5 * without.invalid_rate
