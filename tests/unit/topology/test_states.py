"""What a pipeline file says of the states of its stages, and what follows from it for processes and messages."""

from dataclasses import replace

import pytest

from spillway.checkpoint.leases import LEASE_SECONDS, Lease
from spillway.lineage.errors import UsageError
from spillway.topology.load import parse, remarks
from spillway.topology.routing import Graph
from spillway.topology.sections import LEAST_LEASE, StateSpec
from spillway.topology.spec import PipelineSpec, StageSpec
from spillway.topology.topics import ActualTopic, durability, topic_plan

FIELDS = """
name: p
slo: 1s
partitions: 6
stages:
  - {name: a, model: "m:M", workers: {fronts: 2, standby: 1}}
  - {name: b, model: "m:M", after: a, state: {kind: keyed, shards: 2, backups: 2, replication: s1, lease: 2s}}
  - {name: c, model: "m:M", after: a,
     state: {kind: shared, replication: lineage-stash, checkpoint_every: 1, backups: 0}}
  - {name: d, model: "m:M", after: [b, c], state: {kind: shared, replication: none}}
  - {name: e, model: "m:M", after: d}
"""
SPEC = parse(FIELDS).spec


def test_the_fields():
    stage = parse(FIELDS).written.stage("b")
    assert stage == StageSpec(
        name="b",
        model="m:M",
        after=("a",),
        state=StateSpec(kind="keyed", shards=2, backups=2, replication="s1", lease=2.0),
    )
    assert SPEC.stage("c").required_state.checkpoint_every == 1


def test_what_is_written_out_in_full_reads_as_the_same():
    assert parse(SPEC.model_dump_json()).spec == SPEC


def test_a_stage_without_a_state_is_named():
    with pytest.raises(UsageError, match="stage 'a' keeps no state"):
        SPEC.stage("a").required_state  # noqa: B018 - the reading raises


def test_processes():
    assert {stage.name: stage.processes for stage in SPEC.stages} == {"a": 3, "b": 6, "c": 1, "d": 1, "e": 1}
    assert {stage.name: stage.worker_count for stage in SPEC.stages} == {"a": 2, "b": 2, "c": 1, "d": 1, "e": 1}


def test_a_state_without_a_log_has_no_place():
    assert SPEC.places == (("b", 0), ("b", 1), ("c", 0))


@pytest.mark.parametrize(
    ("stage", "before"), [("a", ()), ("b", ()), ("c", ()), ("d", ("b", "c")), ("e", ("b", "c")), (None, ("b", "c"))]
)
def test_whose_states_a_message_rests_on(stage, before):
    assert Graph(SPEC).rests_on(stage) == before


def test_nothing_rests_on_states_where_there_are_none():
    spec = PipelineSpec(name="p", slo=1.0, stages=(StageSpec(name="a", model="m:M"),))
    assert (Graph(spec).rests_on(None), spec.places) == ((), ())


def test_a_stateful_stage_may_choose_and_split():
    text = FIELDS.replace("name: b, ", "name: b, split: 'm:s', ").replace("name: d, ", "name: d, choose: 'm:c', ")
    assert parse(text).spec.stage("d").choose == "m:c"


def test_what_is_allowed_but_likely_not_meant():
    told = remarks(parse(FIELDS.replace("shards: 2", "shards: 4")))
    assert told == [
        "stage 'b': 6 partitions do not divide evenly by 4 shards: some get 1, others 2",
        "stage 'b': send every query with its key, so that all of a key reach the same shard",
        "stage 'c': it has no backup, so after a failure a restarted process reads its state from the log",
        "stage 'd': its state is not replicated and is lost when its process ends",
    ]


def test_the_shortest_lease_is_that_of_the_protocol():
    assert LEAST_LEASE == LEASE_SECONDS
    Lease(LEAST_LEASE)
    with pytest.raises(ValueError, match="a lease of"):
        Lease(LEAST_LEASE - 0.01)


# What an operator is told of the disks that a pipeline's states are on.

STATEFUL = topic_plan(parse("{name: p, slo: 1, stages: [{name: a, model: 'm:M', state: shared}]}").spec)
STATELESS = topic_plan(parse("{name: p, slo: 1, stages: [{name: a, model: 'm:M'}]}").spec)


def cluster(replicas: int, insync: str | None) -> dict[str, ActualTopic]:
    config = {"min.insync.replicas": insync}
    return {topic.name: ActualTopic(topic.partitions, {**topic.config, **config}, replicas) for topic in STATEFUL}


ONE_DISK = (
    "one copy of everything, on one broker's disk: if that disk is lost, states and accepted queries are lost "
    "(the pipeline's topics have replication factor 1; for more, set default.replication.factor to 3 and "
    "min.insync.replicas to 2 on the brokers before the topics are created)"
)
ONE_IS_ENOUGH = (
    "a write is acknowledged when it is on the leader's disk, and copied to 2 more later: if a leader is lost while "
    "its followers lag, states and accepted queries are lost (the pipeline's topics have min.insync.replicas 1; set "
    "it to 2)"
)
TWO = "every acknowledged write is on the disks of 2 brokers, and soon on 3: losing any one of them loses no data"
ALL = "every acknowledged write is on the disks of 3 brokers: losing any 2 of them loses no data"


@pytest.mark.parametrize(
    ("replicas", "insync", "told"),
    [(1, "1", ONE_DISK), (3, "1", ONE_IS_ENOUGH), (3, None, ONE_IS_ENOUGH), (3, "2", TWO), (3, "3", ALL)],
)
def test_on_how_many_disks_a_write_is(replicas, insync, told):
    assert durability(STATEFUL, cluster(replicas, insync)) == told


def test_a_single_topic_is_named():
    there = cluster(3, "2")
    there["p.control"] = replace(there["p.control"], replicas=1)
    assert "(topic 'p.control' has replication factor 1;" in durability(STATEFUL, there)
    there["p.ingress"] = replace(there["p.ingress"], replicas=1)
    assert "(topic 'p.ingress' and 1 more have replication factor 1;" in durability(STATEFUL, there)


def test_what_no_state_rests_on_does_not_matter():
    there = cluster(3, "2")
    there["p.beat"] = replace(there["p.beat"], replicas=1)
    assert durability(STATEFUL, there) == durability(STATEFUL, cluster(3, "2"))
    assert durability(STATELESS, cluster(1, "1")) is None
