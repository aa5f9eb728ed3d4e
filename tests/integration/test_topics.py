"""Topics on a real cluster: created as planned, by several at once, and refused where they are otherwise."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
from click.testing import CliRunner
from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from spillway.agents.cli.commands.topics import topics
from spillway.agents.live.leftovers import Left, left
from spillway.agents.live.topics import actual, delete, ensure, present, written
from spillway.lineage.errors import TopicError, UsageError
from spillway.topology.sections import StateSpec
from spillway.topology.spec import PipelineSpec, StageSpec
from spillway.topology.topics import TopicRequirement, topic_plan
from tests.waiting import until


def requirement(name, partitions=3, **config):
    return TopicRequirement(name, partitions, {"cleanup.policy": "delete", **config}, "a test")


def test_a_whole_plan_is_created_once_and_found_right_again(settings, unique_name):
    plan = topic_plan(PipelineSpec(name=unique_name, slo=1, stages=(StageSpec(name="a", model="m:M"),), partitions=5))
    created = ensure(settings, plan)
    assert sorted(created) == sorted(topic.name for topic in plan)
    assert ensure(settings, plan) == ()
    admin = AdminClient(settings.confluent())
    there = actual(admin, settings, [topic.name for topic in plan])
    assert there[f"{unique_name}.ingress"].config["message.timestamp.type"] == "LogAppendTime"
    assert there[f"{unique_name}.egress"].partitions == 5


def test_whether_anything_was_ever_written_is_known_after_it_has_gone(settings, unique_name):
    ensure(settings, [requirement(unique_name, partitions=2)])
    assert not written(settings, unique_name, 2)
    producer = Producer(settings.confluent())
    producer.produce(unique_name, b"x", partition=1)
    assert producer.flush(60) == 0
    assert written(settings, unique_name, 2)
    admin = AdminClient(settings.confluent())
    (deleted,) = admin.delete_records([TopicPartition(unique_name, 1, 1)]).values()
    assert deleted.result(60).low_watermark == 1
    assert written(settings, unique_name, 2)


def test_topics_are_deleted_with_their_groups_unless_a_group_has_members(settings, unique_name):
    names = [f"{unique_name}.ingress", f"{unique_name}.dead"]
    plan = [requirement(name, partitions=1) for name in names]
    ensure(settings, plan)
    group = f"{unique_name}.a"
    member = Consumer({**settings.confluent(), "group.id": group, "auto.offset.reset": "earliest"})
    try:
        member.subscribe([names[0]])
        until(lambda: member.poll(0.1) or member.assignment(), 60, "the group has a member")
        member.commit(offsets=[TopicPartition(names[0], 0, 7)], asynchronous=False)
        with pytest.raises(UsageError, match=f"the consumer group {group} has members"):
            delete(settings, names, [group, f"{unique_name}.unknown"])
        assert present(settings, names) == names
    finally:
        member.close()
    delete(settings, names, [group, f"{unique_name}.unknown"])
    until(lambda: present(settings, names) == [], 60, "the topics are gone")
    ensure(settings, plan)
    successor = Consumer({**settings.confluent(), "group.id": group})
    try:
        (committed,) = successor.committed([TopicPartition(names[0], 0)], 60)
        assert committed.offset == OFFSET_INVALID
    finally:
        successor.close()


def stateful(name):
    stage = StageSpec(name="a", model="m:M", state=StateSpec(kind="shared"))
    return topic_plan(PipelineSpec(name=name, slo=1, stages=(stage,), partitions=2))


def test_the_topics_of_states_are_created_and_the_operator_is_told_what_durable_means(settings, unique_name):
    said = []
    created = ensure(settings, stateful(unique_name), say=said.append)
    assert {f"{unique_name}.{topic}" for topic in ("a.versions", "a.state", "control", "beat")} <= set(created)
    assert ensure(settings, stateful(unique_name), say=said.append) == ()
    assert len(said) == 2
    assert all(line.startswith("one copy of everything, on one broker's disk: if that disk is lost") for line in said)
    there = actual(AdminClient(settings.confluent()), settings, created)
    assert {topic.replicas for topic in there.values()} == {1}
    assert there[f"{unique_name}.a.state"].config["unclean.leader.election.enable"] == "false"


def test_several_at_once_are_fine_and_each_topic_is_created_by_one(settings, unique_name):
    plan = [requirement(f"{unique_name}.{number}") for number in range(5)]
    together = threading.Barrier(6)

    def run(_):
        together.wait()
        return ensure(settings, plan)

    with ThreadPoolExecutor(6) as pool:
        created = chain.from_iterable(pool.map(run, range(6)))
    assert sorted(created) == sorted(topic.name for topic in plan)


def test_another_topic_of_that_name_is_refused_with_key_actual_and_required_value(settings, unique_name):
    topic = f"{unique_name}.egress"
    admin = AdminClient(settings.confluent())
    admin.create_topics([NewTopic(topic, 2, config={"cleanup.policy": "compact", "max.message.bytes": "1000"})])[
        topic
    ].result()
    with pytest.raises(TopicError) as raised:
        ensure(settings, [requirement(topic, 3, **{"max.message.bytes": "2000"})])
    text = str(raised.value)
    assert f"topic '{topic}' has 2 partitions, required 3" in text
    assert f"topic '{topic}' has cleanup.policy = compact, required delete" in text
    assert f"topic '{topic}' has max.message.bytes = 1000, required at least 2000" in text
    assert actual(admin, settings, [topic])[topic].partitions == 2  # nothing was altered


def test_the_list_of_topics_says_what_is_wrong_with_them(settings, unique_name, tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"name: {unique_name}\nslo: 1s\npartitions: 3\nstages: [{{name: a, model: 'm:M'}}]\n")
    topic = f"{unique_name}.egress"
    admin = AdminClient(settings.confluent())
    admin.create_topics([NewTopic(topic, 2)])[topic].result()
    listed = CliRunner().invoke(topics, ["list", str(file), "--bootstrap", settings.bootstrap])
    assert listed.exit_code == 0, listed.output
    assert f"topic '{topic}' has 2 partitions, required 3" in listed.stderr
    (line,) = (line for line in listed.stdout.splitlines() if line.startswith(topic))
    assert "there" in line


def test_a_setting_that_the_cluster_does_not_take_is_refused_by_name(settings, unique_name):
    with pytest.raises(TopicError, match=rf"refused to create topic '{unique_name}'"):
        ensure(settings, [requirement(unique_name, **{"max.message.bytes": "-7"})])


def test_what_lies_unread_for_stages_that_left_is_counted(settings, unique_name):
    """By partition: how many records there are, and how many of them each of the readers has committed."""
    cases = {
        "plain": ({"plain": [2, 0]}, [5, 3], 6),
        "read": ({"read": [4, 4]}, [4, 4], 0),
        "new": ({"new": [0, 0]}, [0, 2], 2),
        "shards": ({"shards.0.0": [3, -1], "shards.0.1": [1, -1], "shards.1.0": [-1, 2]}, [3, 4], 2),
        "nobodys": ({}, [7, 7], None),
        "nobodys-2": ({"nobodys": []}, [1, 1], None),
        "stays": ({"stays": [0, 0]}, [3, 3], None),
    }
    stages = (StageSpec(name="a", model="m:M"), StageSpec(name="stays", model="m:M", after=("a",)))
    spec = PipelineSpec(name=unique_name, slo=1, stages=stages, partitions=2)
    plan = topic_plan(spec)
    inputs = [requirement(f"{unique_name}.{stage}", partitions=2) for stage in cases if stage != "stays"]
    others = [requirement(f"{unique_name}.other.{stage}", partitions=2) for stage in ("ingress", "plain")]
    ensure(settings, [*plan, *inputs, *others])
    producer = Producer(settings.confluent())
    for stage, (readers, counts, _) in cases.items():
        topic = f"{unique_name}.{stage}"
        for partition, count in enumerate(counts):
            for _ in range(count):
                producer.produce(topic, b"x", partition=partition)
        assert producer.flush(60) == 0
        for reader, committed in readers.items():
            consumer = Consumer({**settings.confluent(), "group.id": f"{unique_name}.{reader}"})
            places = [TopicPartition(topic, p, offset) for p, offset in enumerate(committed) if offset >= 0]
            if places:
                consumer.commit(offsets=places, asynchronous=False)
            consumer.close()
    expected = {stage: (sorted(readers), count) for stage, (readers, _, count) in cases.items() if count is not None}
    found = {each.topic.rpartition(".")[2]: each for each in left(settings, spec)}
    assert {stage: (sorted(g.removeprefix(f"{unique_name}.") for g in each.groups), each.unread)
            for stage, each in found.items()} == expected  # fmt: skip
    assert f"6 records wait in {unique_name}.plain for stage 'plain', which the file does not have" in str(
        found["plain"]
    )
    assert isinstance(found["read"], Left)
