"""What the supervisor asks the broker about members of stateful stages."""

from confluent_kafka import Consumer, Producer, TopicPartition

from spillway.agents.live.topics import ensure
from spillway.agents.supervise.groups import KafkaGroups, watched_groups
from spillway.agents.supervise.watchdog import PartitionSight, Watchdog
from spillway.topology import topics
from spillway.topology.load import parse

STAGES = 'stages: [{name: learn, model: "m:M", state: {kind: shared, shards: 2}}]'


def test_a_member_is_judged_by_what_its_own_group_has_committed(settings, unique_name, broker):
    pipeline = parse(f"name: {unique_name}\nslo: 1\npartitions: 2\n{STAGES}\n", "p.yaml")
    ensure(settings, topics.topic_plan(pipeline.spec))
    ingress = topics.ingress(unique_name)
    producer = Producer({"bootstrap.servers": broker})
    for partition in (0, 1):
        for _ in range(5):
            producer.produce(ingress, b"x", partition=partition)
    assert producer.flush(30) == 0
    backup = Consumer(
        {"bootstrap.servers": broker, "group.id": f"{unique_name}.learn.1.1", "enable.auto.commit": False}
    )
    backup.commit(offsets=[TopicPartition(ingress, 1, 3)], asynchronous=False)
    backup.close()
    groups = KafkaGroups(settings, unique_name, watched_groups(pipeline))
    sights = groups.look(["learn.0.0", "learn.1.1", "gate"])
    assert sights["learn.0.0"].partitions == {0: PartitionSight(0, 5, 0)}
    assert sights["learn.1.1"].partitions == {1: PartitionSight(3, 5, 3)}
    assert sights["learn.1.1"].members == {3}
    dog = Watchdog(30.0, longest_gap=100.0)
    assert not dog.observe(0.0, sights["learn.1.1"], {3: -100.0})
    assert dog.observe(30.0, sights["learn.1.1"], {3: -100.0}) == {3}
