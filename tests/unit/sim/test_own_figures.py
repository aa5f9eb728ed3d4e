"""Requests with a budget, a partition and a hop delay of their own."""

import pytest

from agents.sim.simulation import simulate
from lineage.errors import UsageError
from producers.report import DROPPED, PREDICTION
from topology.load import parse

SPEC = """
name: small
slo: 1
partitions: 4
stages:
  - {name: a, emulated: {alpha: 100ms, beta: 0}, batch: 1, replicas: 2}
  - {name: b, after: a, emulated: {alpha: 100ms, beta: 0}, batch: 1, replicas: 2}
"""


def run(arrivals, **options):
    return simulate(parse(SPEC), arrivals, policy="expired", **options)


def test_each_is_judged_by_its_own_deadline():
    # All at once, one after the other: the third would enter a batch at .1 s.
    found = run([0.0] * 3, partitions=[0, 0, 0], budgets=[1.0, 1.0, 0.05])
    assert found.kind.tolist() == [PREDICTION, PREDICTION, DROPPED]


def test_each_goes_to_its_own_partition():
    apart = run([0.0, 0.0], partitions=[0, 1])
    together = run([0.0, 0.0], partitions=[0, 2])
    assert apart.finished.tolist() == pytest.approx([0.2, 0.2])
    assert together.finished.tolist() == pytest.approx([0.2, 0.3])


def test_each_takes_its_own_time_from_hop_to_hop():
    found = run([0.0, 0.0], partitions=[0, 1], hops=[0.0, 0.01])
    assert found.finished.tolist() == pytest.approx([0.2, 0.23])


@pytest.mark.parametrize(
    "wrong",
    [
        {"budgets": [1.0]},
        {"budgets": [1.0, 0.0]},
        {"partitions": [0]},
        {"partitions": [0, 4]},
        {"hops": [0.0]},
        {"hops": [0.0, -1.0]},
    ],
)
def test_what_does_not_fit_is_refused(wrong):
    with pytest.raises(UsageError, match="for 2 arrivals; give one each"):
        run([0.0, 0.0], **wrong)
