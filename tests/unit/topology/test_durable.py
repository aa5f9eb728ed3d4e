"""What an operator is told of the disks that a pipeline's states are on."""

from __future__ import annotations

from dataclasses import replace

from topology.load import parse
from topology.topics import ActualTopic, durability, topic_plan

STATEFUL = topic_plan(parse("{name: p, slo: 1, stages: [{name: a, model: 'm:M', state: shared}]}").spec)
STATELESS = topic_plan(parse("{name: p, slo: 1, stages: [{name: a, model: 'm:M'}]}").spec)


def cluster(replicas: int, insync: str | None) -> dict[str, ActualTopic]:
    config = {"min.insync.replicas": insync}
    return {topic.name: ActualTopic(topic.partitions, {**topic.config, **config}, replicas) for topic in STATEFUL}


def test_one_disk():
    assert durability(STATEFUL, cluster(1, "1")) == (
        "durable means: on one broker's disk; the loss of that disk loses states and accepted queries (the pipeline's "
        "topics have replication factor 1; for more, set default.replication.factor to 3 and min.insync.replicas to 2 "
        "on the brokers before the topics are created)"
    )


def test_several_disks_of_which_one_is_enough():
    for insync in ("1", None):
        assert durability(STATEFUL, cluster(3, insync)) == (
            "durable means: on the leader's disk, and soon on 2 more; the loss of a leader whose followers lag loses "
            "states and accepted queries (the pipeline's topics have min.insync.replicas 1; set it to 2)"
        )


def test_two_disks_and_more():
    assert durability(STATEFUL, cluster(3, "2")) == (
        "durable means: on the disks of 2 brokers, and soon of 3; the loss of any one of them loses nothing"
    )
    assert durability(STATEFUL, cluster(3, "3")) == (
        "durable means: on the disks of 3 brokers; the loss of any 2 of them loses nothing"
    )


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
