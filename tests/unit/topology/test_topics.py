"""The topics of a pipeline, and where a cluster has them otherwise."""

import pytest

from spillway.checkpoint.layout import CHUNK_BYTES, OWN_BYTES
from spillway.checkpoint.manifests import INLINE_BYTES
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.topology import topics
from spillway.topology.load import parse
from spillway.topology.names import RESERVED
from spillway.topology.topics import ActualTopic, mismatches, topic_plan

SPEC = parse(
    "{name: p, slo: 1, partitions: 6, stages: [{name: a, model: 'm:M'}, {name: b, model: 'm:M'},"
    "{name: c, after: [a, b], model: 'm:M'}]}"
).spec
PLAN = topic_plan(SPEC)


def as_planned(plan=PLAN) -> dict[str, ActualTopic]:
    extra = {"segment.bytes": "1", "min.insync.replicas": "2"}
    return {topic.name: ActualTopic(topic.partitions, {**topic.config, **extra}) for topic in plan}


def test_no_stage_can_be_called_like_a_topic():
    assert {topic.name.partition(".")[2] for topic in PLAN} <= {*RESERVED, "c"}


def test_the_plan():
    assert [(topic.name, topic.partitions) for topic in PLAN] == [
        ("p.ingress", 6),
        ("p.c", 6),
        ("p.outcomes", 6),
        ("p.egress", 6),
        ("p.dead", 6),
        ("p.schemas", 1),
        ("p.plan", 1),
        ("p.owners", 1),
        ("p.sizes", 1),
    ]
    by_name = {topic.name: topic for topic in PLAN}
    assert by_name["p.ingress"].purpose == "queries, read by a, b"
    assert by_name["p.ingress"].config["message.timestamp.type"] == "LogAppendTime"
    plain = {name for name, topic in by_name.items() if topic.config.get("compression.type") == "uncompressed"}
    assert plain == {"p.ingress", "p.schemas", "p.plan"}
    compacted = {name for name, topic in by_name.items() if topic.config["cleanup.policy"] == "compact"}
    assert compacted == {"p.schemas", "p.plan", "p.owners", "p.sizes"}
    for topic in PLAN[:-4]:
        assert int(topic.config["max.message.bytes"]) > DEFAULT_LIMITS.max_message_bytes
    assert int(by_name["p.dead"].config["max.message.bytes"]) > int(by_name["p.c"].config["max.message.bytes"])


STATEFUL = parse(
    "{name: p, slo: 1, partitions: 6, stages: [{name: a, model: 'm:M', state: {kind: keyed, shards: 3, lease: 20s}},"
    "{name: b, after: a, model: 'm:M'}, {name: c, after: b, model: 'm:M', state: shared},"
    "{name: d, after: c, model: 'm:M', state: {kind: shared, replication: none}}]}"
).spec


def test_what_replicated_states_need():
    plan = topic_plan(STATEFUL)
    by_name = {topic.name: topic for topic in plan}
    assert [(topic.name, topic.partitions) for topic in plan if topic.name not in {each.name for each in PLAN}] == [
        *(("p.b", 6), ("p.d", 6)),
        *(("p.a.versions", 3), ("p.a.state", 3), ("p.c.versions", 1), ("p.c.state", 1)),
        *(("p.control", 1), ("p.beat", 1)),
    ]
    for name in ("p.a.versions", "p.a.state", "p.c.versions", "p.c.state", "p.control"):
        assert by_name[name].config["cleanup.policy"] == "compact"
        assert "retention.ms" not in by_name[name].config
    assert by_name["p.c.state"].config["min.compaction.lag.ms"] == "60000"
    assert by_name["p.a.versions"].config["min.compaction.lag.ms"] == "100000"
    timed = "message.timestamp.type"  # without it no link of a chain is ever old
    assert by_name["p.a.versions"].wished == {timed: "LogAppendTime"}
    assert timed not in by_name["p.a.versions"].config
    assert by_name["p.beat"].config["cleanup.policy"] == "delete"


def test_no_topic_that_states_rest_on_may_have_a_leader_that_lags():
    plan = topic_plan(STATEFUL)
    assert {topic.name for topic in plan if topics.UNCLEAN not in topic.config} == {"p.beat", "p.plan", "p.dead"}
    assert not [topic for topic in PLAN if topics.UNCLEAN in topic.config]
    there = as_planned(plan)
    there["p.a.versions"].config[topics.UNCLEAN] = "true"
    assert mismatches(plan, there) == ["topic 'p.a.versions' has unclean.leader.election.enable = true, required false"]


def test_chunks_and_manifests_fit_their_topics():
    most = int({topic.name: topic for topic in topic_plan(STATEFUL)}["p.a.state"].config["max.message.bytes"])
    assert most == topics.STATE_BYTES
    assert most >= 2 * (CHUNK_BYTES + OWN_BYTES + 1_024)  # with the key and the batch around a chunk
    assert most >= 2 * INLINE_BYTES


def test_a_longer_compaction_lag_smaller_segments_and_more_compaction_suffice():
    plan = topic_plan(STATEFUL)
    there = as_planned(plan)
    there["p.a.state"].config.update({"min.compaction.lag.ms": "9000000", "segment.bytes": "1048576"})
    there["p.a.state"].config["min.cleanable.dirty.ratio"] = "0.01"
    assert mismatches(plan, there) == []
    there["p.a.state"].config["min.cleanable.dirty.ratio"] = "0.5"
    assert mismatches(plan, there) == ["topic 'p.a.state' has min.cleanable.dirty.ratio = 0.5, required at most 0.2"]
    there["p.a.state"].config["min.cleanable.dirty.ratio"] = "0.2"
    there["p.a.state"].config.update({"min.compaction.lag.ms": "0"})
    assert mismatches(plan, there) == [
        "topic 'p.a.state' has min.compaction.lag.ms = 0 (0 s), required at least 100000 (100 s)"
    ]


def test_the_limit_of_messages_is_the_topics_too():
    spec = parse("{name: p, slo: 1, limits: {max_message_bytes: 100MiB}, stages: [{name: a, model: 'm:M'}]}").spec
    assert int(topic_plan(spec)[0].config["max.message.bytes"]) > 100 << 20


def test_what_is_as_planned_is_fine():
    assert mismatches(PLAN, as_planned()) == []


def test_what_is_missing_and_what_has_other_partitions():
    actual = as_planned()
    del actual["p.egress"]
    actual["p.c"] = ActualTopic(3, actual["p.c"].config)
    assert mismatches(PLAN, actual) == [
        "topic 'p.c' has 3 partitions, required 6",
        "topic 'p.egress' is missing (one outcome per query)",
    ]


@pytest.mark.parametrize(
    ("name", "key", "value", "told"),
    [
        ("p.c", "cleanup.policy", "compact", "compact, required delete"),
        ("p.plan", "cleanup.policy", "delete", "delete, required compact"),
        ("p.schemas", "cleanup.policy", "compact,delete", "compact,delete, required compact"),
        ("p.c", "retention.ms", "60000", "60000 (60 s), required at least 86400000 (24 h)"),
        ("p.c", "retention.bytes", "1000000", "1000000, required no limit (-1)"),
        ("p.c", "max.message.bytes", "1048588", "1048588, required at least 8454144"),
        ("p.ingress", "message.timestamp.type", "CreateTime", "CreateTime, required LogAppendTime"),
        ("p.ingress", "compression.type", "producer", "producer, required uncompressed"),
        ("p.schemas", "delete.retention.ms", "86400000", "86400000 (24 h), required at most 60000 (60 s)"),
        ("p.c", "retention.ms", None, "nothing, required at least 86400000 (24 h)"),
        ("p.c", "retention.ms", "x", "x, required at least 86400000 (24 h)"),
        ("p.c", "retention.ms", "-1", None),
        ("p.c", "retention.ms", "172800000", None),
        ("p.c", "max.message.bytes", "100000000", None),
        ("p.c", "compression.type", "zstd", None),
        ("p.schemas", "delete.retention.ms", "100", None),
        ("p.c", "message.timestamp.type", "LogAppendTime", None),
    ],
)
def test_what_is_otherwise_and_what_suffices(name, key, value, told):
    there = as_planned()
    there[name].config[key] = value
    assert mismatches(PLAN, there) == ([] if told is None else [f"topic '{name}' has {key} = {told}"])
