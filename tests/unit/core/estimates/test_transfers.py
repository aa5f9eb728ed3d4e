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
from lineage.metric_names import GATE
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


def test_nine_in_ten_recent_ways_are_covered():
    way = Transfer()
    for number in range(100):
        way.hear(number / 100, 0.001 * (number + 1))
    assert way.seconds(1.0) == pytest.approx(0.09)


def test_a_way_is_remembered_for_two_seconds_and_none_is_longer_than_one():
    way = Transfer()
    way.hear(0.0, 3600.0)  # after an outage
    assert way.seconds(0.0) == 1.0
    for number in range(1, 5):
        way.hear(number / 2, 0.01)
    assert way.seconds(2.0) == pytest.approx(0.01)  # the median of a few
    for _ in range(50):
        way.hear(2.1, 0.02)
    assert way.seconds(2.1) == pytest.approx(0.02)
    for _ in range(50):
        way.hear(4.2, -0.5)  # a clock that was set back
    assert way.seconds(4.2) == 0.0


def test_a_few_slow_ways_at_first_are_not_taken_for_the_rule():
    way = Transfer()
    for number in range(40):
        way.hear(number / 100, 0.2 if number < 15 else 0.01)
    assert way.seconds(0.4) == pytest.approx(0.01)
    for number in range(40, 60):
        way.hear(number / 100, 0.01)
    assert way.seconds(0.6) == pytest.approx(0.2)  # fifteen of sixty


def test_where_none_comes_for_a_second_nothing_is_known():
    """A stage that drops everything because of slow ways would never hear that they are fast again."""
    way = Transfer()
    assert way.seconds(0.0) == 0.0
    way.hear(1.0, 0.8)
    assert way.seconds(1.9) == 0.8
    assert way.seconds(2.1) == 0.0


PIPELINE = """\
name: way
slo: 400ms
stages:
  - {name: a, batch: 4, instances: 2, emulated: {alpha: 20ms, beta: 10ms}}
  - {name: b, batch: 4, instances: 2, after: a, emulated: {alpha: 20ms, beta: 10ms}}
  - {name: c, batch: 4, instances: 2, after: b, emulated: {alpha: 20ms, beta: 10ms}}
"""


def dropped(policy="pard", hop=0.02):
    """The drop rate of an overload with hops of `hop` seconds: everywhere, or by place; for all, or for each."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "way.yaml"
        file.write_text(PIPELINE)
        arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / 160.0, 6_000))
        ways = hop if isinstance(hop, dict) else dict.fromkeys((*CHAIN, GATE), hop)
        hops = {place: np.broadcast_to(seconds, len(arrivals)) for place, seconds in ways.items()}
        return simulate(load(file), arrivals, dispatch="shared", policy=policy, hops=hops).report("way")


def test_an_estimate_that_leaves_the_ways_out_wastes_work(monkeypatch):
    """Requests served at the edge of their deadlines would be dropped late, or be late."""
    with_ways = dropped()
    monkeypatch.setattr(outlook.Outlook, "transfers", lambda _self, _path: 0.0)
    without = dropped()
    assert with_ways.drop_rate < 0.9 * without.drop_rate
    assert with_ways.invalid_rate < 0.5 * without.invalid_rate


def test_expecting_the_mean_way_wastes_work(monkeypatch):
    """Ways vary: half of what is served at the edge of its deadline would be late."""
    ways = np.random.default_rng(2).exponential(0.015, 6_000)
    cautious = dropped("spillway", hop=ways)
    monkeypatch.setattr(Transfer, "seconds", lambda way, _now: float(np.mean([each for _, each in way._ways] or [0.0])))
    hopeful = dropped("spillway", hop=ways)
    assert cautious.invalid_rate < 0.7 * hopeful.invalid_rate
    assert cautious.drop_rate < 0.95 * hopeful.drop_rate


def test_an_outage_does_not_keep_everything_out_for_good():
    """Behind a stage that lets nothing in, no message comes by which slow ways could be found to be over."""
    usual = dict.fromkeys((*CHAIN, GATE), 0.01)
    slow = np.where(np.abs(np.arange(6_000) / 160.0 - 10.0) < 1.0, 0.8, 0.01)  # for two seconds, twice the SLO
    assert dropped(hop=usual | {"c": slow}).drop_rate < dropped(hop=usual).drop_rate + 0.15
