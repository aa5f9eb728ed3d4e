"""What messages take on their way belongs to the estimate of what is still before a request."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

from spillway.agents.core.estimates.outlook import Outlook
from spillway.agents.core.policy import StageFacts, StageState, StageView
from spillway.agents.sim.simulation import simulate
from spillway.lineage.metric_names import GATE
from spillway.topology.load import load

CHAIN = {"a": ("b",), "b": ("c",), "c": ()}
FACTS = {name: StageFacts(4, lambda _n: 0.05, 1) for name in CHAIN}


def heard(share=0.1, **hops):
    made = Outlook(StageView("a", slo=1.0, facts=FACTS, successors=CHAIN), share, 10_000)
    made.hear(1.0, {stage: [StageState(stage, 0, 1.0, hops=seconds)] for stage, seconds in hops.items()})
    return made


def test_the_hops_into_all_later_stages_and_through_the_gate_add_up():
    later = heard(a=[0.5], b=[0.01], c=[0.02], gate=[0.04]).later("a")
    assert later.waits == pytest.approx(0.07)
    assert later.total == pytest.approx(0.07 + later.queueing + later.execution)


def test_behind_the_last_stage_there_is_still_the_gate():
    assert heard(c=[0.02], gate=[0.04]).later("c").total == pytest.approx(0.04)


def test_the_replicas_of_a_stage_tell_of_one_distribution():
    made = Outlook(StageView("a", slo=1.0, facts=FACTS, successors=CHAIN), 0.5, 10_000)
    made.hear(1.0, {"c": [StageState("c", 0, 1.0, hops=[0.01] * 3), StageState("c", 1, 1.0, hops=[0.03])]})
    assert made.hops(("c",), 0.7) == pytest.approx(0.01)
    assert made.hops(("c",), 0.8) == pytest.approx(0.03)


def test_what_a_sum_of_hops_covers_is_far_below_the_sum_of_what_each_covers():
    """Every stage has one slow hop in five: their p90s add up to 1.2 s, but four in ten requests meet none."""
    slow = [0.01] * 8 + [0.3] * 2
    made = heard(a=slow, b=slow, c=slow, gate=slow)
    assert made.later("a").waits == pytest.approx(0.03)
    assert made.hops(("b", "c"), 0.9) == pytest.approx(0.61)


def test_waits_and_hops_are_one_sum():
    """The .1 quantile of two even spreads over 100 ms together is 45 ms, and of each 10 ms."""
    even = [(i + 0.5) / 1000 for i in range(100)]
    made = Outlook(StageView("a", slo=1.0, facts=FACTS, successors=CHAIN), 0.1, 10_000)
    made.hear(1.0, {"c": [StageState("c", 0, 1.0, waits=even, waits_seen=100, hops=even)]})
    assert made.later("b").waits == pytest.approx(0.0447, abs=0.002)
    assert made.hops(("c",)) == pytest.approx(0.01, abs=0.002)


PIPELINE = """\
name: way
slo: 400ms
stages:
  - {name: a, batching: {size: 4}, workers: {count: 2}, emulated: {alpha: 20ms, beta: 10ms}}
  - {name: b, batching: {size: 4}, workers: {count: 2}, after: a, emulated: {alpha: 20ms, beta: 10ms}}
  - {name: c, batching: {size: 4}, workers: {count: 2}, after: b, emulated: {alpha: 20ms, beta: 10ms}}
"""


def simulated(policy="pard", hop=0.02, rate=160.0):
    """A run (6,000 requests; 160/s overload it) with hops of `hop` seconds: everywhere, or by place; or for each."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "way.yaml"
        file.write_text(PIPELINE)
        arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / rate, 6_000))
        hops = hop if isinstance(hop, dict) else dict.fromkeys((*CHAIN, GATE), hop)
        hops = {place: np.broadcast_to(seconds, len(arrivals)) for place, seconds in hops.items()}
        return simulate(load(file), arrivals, dispatch="shared", policy=policy, hops=hops)


def dropped(policy="pard", hop=0.02, rate=160.0):
    return simulated(policy, hop, rate).report("way")


@pytest.mark.parametrize("policy", ["pard", "spillway"])
def test_slow_hops_cost_no_more_than_they_make_late(policy):
    """One hop in five is slow everywhere and the stages are idle: what could be served is served."""
    random = np.random.default_rng(3)
    hops = {place: np.where(random.random(6_000) < 0.2, 0.15, 0.005) for place in (*CHAIN, GATE)}
    naive, ours = dropped("naive", hops, rate=40.0), dropped(policy, hops, rate=40.0)
    assert naive.drop_rate < 0.2
    assert ours.drop_rate < naive.drop_rate + 0.02


@pytest.mark.parametrize("policy", ["pard", "spillway"])
def test_an_outage_lets_one_a_second_through_and_is_over_when_it_is_over(policy):
    """From 60 s to 90 s messages into c take twice the SLO."""
    usual = dict.fromkeys((*CHAIN, GATE), 0.01)
    at = np.arange(6_000) / 40.0
    result = simulated(policy, usual | {"c": np.where((at > 60) & (at < 90), 0.8, 0.01)}, rate=40.0)

    def each(values, since, until):
        return float(np.mean(values[(result.due > since) & (result.due < until)]))

    assert 0.5 / 40 < each(result.spent > 0, 65.0, 89.0) < 1.5 / 40  # nothing but probes
    good = result.finished - result.due <= 0.4
    assert each(good & (result.spent > 0), 96.0, 140.0) > 0.99
