"""Damaging a topic on purpose: records deleted at its start, or its end cut off, or deleted and made again.

Kafka forgets what groups have committed of a topic that is deleted, but not of one whose leader lost records: that is
played by a group which has committed more than there is.
"""

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.waiting import until


def delete_records(bootstrap: str, topic: str, before: dict[int, int]) -> None:
    """Delete what lies below an offset, by partition, as retention does."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.delete_records([TopicPartition(topic, partition, offset) for partition, offset in before.items()])
    for future in asked.values():
        future.result(60)


def commit_ahead(bootstrap: str, group: str, topic: str, positions: dict[int, int]) -> None:
    """Have an empty group have committed other offsets."""
    places = [TopicPartition(topic, partition, offset) for partition, offset in positions.items()]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])
    assert not [place.error for place in asked[group].result(60).topic_partitions if place.error is not None]


def make_again(bootstrap: str, topic: str, partitions: int, config: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(60)

    def created() -> bool:
        try:
            admin.create_topics([NewTopic(topic, partitions, config=config or {})])[topic].result(60)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # while its deletion is under way
                raise
            return False
        return True

    until(created, 60)
    until(lambda: len(admin.list_topics(topic, 10).topics[topic].partitions) == partitions, 60)
