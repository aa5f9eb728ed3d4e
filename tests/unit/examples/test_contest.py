"""The contest of policies asks for as many queries as the slowest stage answers in a while, by the planned batches."""

from examples.plates import contest
from spillway.topology.load import parse

PIPELINE = """
name: p
slo: 1s
stages:
  - {name: a, emulated: {alpha: 0ms, beta: 5ms}, batching: {size: 4}}
  - {name: b, after: a, emulated: {alpha: 10ms, beta: 10ms}, batching: {size: 4}}
"""


def test_capacity_is_measured_with_queries_for_the_slowest_stage(monkeypatch):
    asked = []
    monkeypatch.setattr(contest, "answer", lambda _pipeline, _settings, queries, _at_once: asked.append(queries) or 2.0)
    rate = contest.capacity(parse(PIPELINE, "p.yaml"), None)
    assert asked == [max(contest.WARM, int(contest.MEASURE * 80))]  # batches of 4 in 50 ms
    assert rate == asked[0] / 2.0
