"""Which processes a pipeline has on a machine, their names, and the consumer groups that the watchdog looks at."""

from __future__ import annotations

import pytest

from agents.live.groups import member_of
from agents.supervise.groups import Watched, watched_groups
from agents.supervise.service import ServiceSettings, child_plans
from producers.connection import ClientSettings
from topology.load import parse

PIPELINE = """
name: p
slo: 1
partitions: 4
stages:
  - {name: a, model: "m:M", replicas: 2, standby: 2}
  - {name: learn, model: "m:M", after: a, state: shared, shards: 2, backups: 2}
  - {name: bare, model: "m:M", after: learn, state: keyed, shards: 2, replication: none}
"""


@pytest.fixture
def pipeline():
    return parse(PIPELINE, "p.yaml")


@pytest.fixture
def plans(pipeline, tmp_path):
    settings = ServiceSettings(pipeline, ClientSettings(bootstrap="localhost:1"), tmp_path, policy="naive")
    return {plan.name: plan for plan in child_plans(settings)}


def test_everybody_has_a_name_of_its_own(plans):
    members = [f"learn.{shard}.{member}" for shard in range(2) for member in range(3)]
    assert list(plans) == ["a.0", "a.1", "a.standby0", "a.standby1", *members, "bare.0", "bare.1", "gate.0"]


def option(plan, name):
    return plan.command[list(plan.command).index(name) + 1]


def test_members_are_numbered_as_replicas_are(plans, pipeline):
    last = plans["learn.1.2"]
    assert (last.role, last.replica, last.shard, last.member) == ("member", 5, 1, "p.learn.1.2")
    assert (option(last, "--stage"), option(last, "--replica"), option(last, "--policy")) == ("learn", "5", "naive")
    assert member_of(pipeline.spec.stage("learn"), 5) == (1, 2)
    assert "--standby" not in last.command


def test_a_standby_is_told_that_it_is_one(plans):
    plan = plans["a.standby1"]
    assert (plan.role, option(plan, "--stage"), option(plan, "--replica")) == ("standby", "a", "1")
    assert "--standby" in plan.command
    assert "--standby" not in plans["a.1"].command


def test_a_state_that_is_not_replicated_lives_in_an_ordinary_replica(plans):
    assert [(plans[name].role, option(plans[name], "--replica")) for name in ("bare.0", "bare.1")] == [
        ("stage", "0"),
        ("stage", "1"),
    ]


def test_members_are_watched_each_by_a_group_of_its_own(pipeline, plans):
    groups = watched_groups(pipeline)
    assert groups["a"] == Watched("p.ingress", (0, 1, 2, 3))
    assert groups["learn.0.1"] == Watched("p.learn", (0, 2), only=1)
    assert groups["learn.1.2"] == Watched("p.learn", (1, 3), only=5)
    assert groups["bare"] == Watched("p.bare", (0, 1, 2, 3))
    assert groups["gate"] == Watched("p.outcomes", (0, 1, 2, 3))
    assert {plan.group for plan in plans.values() if plan.role != "standby"} == set(groups)
