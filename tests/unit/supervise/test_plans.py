"""Which processes a pipeline has on a machine, their names, and the consumer groups that the watchdog looks at."""

import json
import os
import time
from dataclasses import replace

import pytest
from confluent_kafka.admin import OffsetSpec

from spillway.agents.core.joins import longest_wait
from spillway.agents.live.groups import member_of
from spillway.agents.live.registry import Address, Entry
from spillway.agents.supervise import groups
from spillway.agents.supervise.child import GATE
from spillway.agents.supervise.groups import Watched, watched_groups
from spillway.agents.supervise.registry import ServeEntry, entries
from spillway.agents.supervise.service import (
    EVERY_SECONDS,
    Service,
    ServiceSettings,
    Targets,
    child_plans,
    join_holds,
    targets_path,
)
from spillway.agents.supervise.supervisor import SupervisorSettings
from spillway.producers.connection import ClientSettings
from spillway.topology.load import parse

PIPELINE = """
name: p
slo: 1
partitions: 4
stages:
  - {name: a, model: "m:M", workers: {fronts: 2, standby: 2}}
  - {name: learn, model: "m:M", after: a, state: {kind: shared, shards: 2, backups: 2}}
  - {name: bare, model: "m:M", after: learn, state: {kind: keyed, shards: 2, replication: none}}
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


def test_learners_are_served_beside_it_but_for_those_that_are_served_elsewhere(tmp_path):
    more = 'learners: [{name: taste, model: "m:M", state: keyed}, {name: other, model: "m:M", state: keyed}]'
    settings = ServiceSettings(parse(PIPELINE + more), ClientSettings(bootstrap="localhost:1"), tmp_path)

    def served(*elsewhere):
        service = Service(replace(settings, elsewhere=elsewhere), say=print)
        return [learner._name for learner in service._learners._services]

    assert served() == ["p-taste", "p-other"]
    assert served("taste") == ["p-other"]
    assert served("taste", "other") == []


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


# All processes of a served pipeline speak at the same moments: as told, else as often as its policies ask.

POLICIES = """
name: p
slo: 1
stages:
  - {name: a, emulated: {beta: 1ms}, workers: {fronts: 2}}
  - {name: b, emulated: {beta: 1ms}, after: a, policy: naive}
  - {name: c, emulated: {beta: 1ms}, after: b, policy: spillway}
"""


@pytest.mark.parametrize(
    ("given", "period"), [({}, "0.1"), ({"policy": "pard"}, "1.0"), ({"policy": "pard", "plan_period": 0.3}, "0.3")]
)
def test_every_process_is_given_the_same_period(tmp_path, given, period):
    pipeline = parse(POLICIES, "p.yaml")
    settings = ServiceSettings(pipeline, ClientSettings(bootstrap="localhost:1"), tmp_path, **given)
    commands = {f"{plan.stage}.{plan.replica}": plan.command for plan in child_plans(settings)}
    assert set(commands) == {"a.0", "a.1", "b.0", "c.0", f"{GATE}.0"}
    for command in commands.values():
        assert command[command.index("--plan-period") + 1] == period


# A stage that waits by right is not taken for one that hangs.

DIAMOND = """
name: p
slo: 60
stages:
  - {name: a, model: "m:M"}
  - {name: b, model: "m:M", after: a}
  - {name: c, model: "m:M", after: a}
  - {name: d, model: "m:M", after: [b, c]}
"""
TWO_ENDS = """
name: p
slo: 0.1
sinks: all
stages:
  - {name: a, model: "m:M"}
  - {name: b, model: "m:M", after: a}
  - {name: c, model: "m:M", after: a}
"""


def test_joins_may_hold_their_input_for_as_long_as_they_wait():
    assert join_holds(parse(DIAMOND, "p.yaml")) == {"d": longest_wait(60.0)}
    assert join_holds(parse(TWO_ENDS, "p.yaml")) == {"gate": longest_wait(0.1)}


def test_the_watchdogs_patience_is_longer_than_any_such_wait():
    settings = SupervisorSettings(stall=30.0, holds={"d": longest_wait(60.0)})
    assert settings.patience("d") == 30.0 + longest_wait(60.0)
    assert settings.patience("a") == 30.0


# The file that tells Prometheus where a pipeline's processes are.


def test_it_names_every_process_and_follows_changes(tmp_path):
    served = ServeEntry("p", "p.yaml", "b:1", None, os.getpid(), time.time(), port=9400)
    served.write(tmp_path)
    Entry(tmp_path, "p", "greet", 0, role="stage", address=Address("0.0.0.0", 9401))
    targets = Targets(tmp_path, "p")
    targets.keep(0.0)
    file = targets_path(tmp_path, "p")
    assert json.loads(file.read_text()) == [
        {"targets": ["127.0.0.1:9400"], "labels": {"pipeline": "p", "place": "supervisor"}},
        {"targets": ["127.0.0.1:9401"], "labels": {"pipeline": "p", "place": "greet.0"}},
    ]
    file.unlink()
    targets.keep(EVERY_SECONDS)
    assert not file.exists(), "nothing has changed"
    Entry(tmp_path, "p", "greet", 0, role="stage", address=Address("10.0.0.1", 9500))
    targets.keep(EVERY_SECONDS * 1.5)
    assert not file.exists(), "it is not looked at all the time"
    targets.keep(EVERY_SECONDS * 2)
    assert json.loads(file.read_text())[1]["targets"] == ["10.0.0.1:9500"]
    assert [entry.name for entry in entries(tmp_path, "p")] == ["greet.0"]


# What is seen of a group while the broker leads nothing.

NOBODY = -1001  # the offset of a partition without a leader, said without an error


def look(monkeypatch, begin, end, *, markers=False):
    """The partitions that are seen of a group that has committed 5."""
    monkeypatch.setattr(groups.Admin, "once", lambda _self, question: question(None))
    monkeypatch.setattr(groups.KafkaGroups, "_offsets_of", lambda _self, _group: {0: 5})

    def offsets(_self, _client, _groups, spec):
        return {("g", 0): end if isinstance(spec, type(OffsetSpec.latest())) else begin}

    monkeypatch.setattr(groups.KafkaGroups, "_offsets", offsets)
    watched = groups.Watched("t", (0,), only=0, markers=markers)
    watch = groups.KafkaGroups(ClientSettings.load("127.0.0.1:1"), "p", {"g": watched})
    return set(watch.look(["g"])["g"].partitions)


@pytest.mark.parametrize(
    ("begin", "end", "seen"),
    [
        (0, 8, {0}),
        (NOBODY, 8, set()),  # it has no leader: else its end would be far below what was read of it
        (0, NOBODY, set()),
        (5, 8, {0}),
        (6, 8, set()),  # it is stopped for lost records, and no restart of its reader would move it
        (0, 4, set()),
        (5, 5, {0}),
    ],
)
def test_a_partition_without_a_leader_or_that_stands_still_by_right_is_not_seen(monkeypatch, begin, end, seen):
    assert look(monkeypatch, begin, end) == seen


def test_behind_transactions_a_start_above_the_position_does_not_stop_a_partition(monkeypatch):
    assert look(monkeypatch, 6, 8, markers=True) == {0}
