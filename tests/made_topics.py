"""Topics for tests that serve no pipeline: made, and usable when `make_all` returns.

The controller says that it has made a topic before the brokers say that they have it, and a client that comes between
the two is told that there is no such topic.
"""

from confluent_kafka.admin import AdminClient, NewTopic

from tests.waiting import PATIENT_SECONDS, until

_ASK_SECONDS = 10.0


def make_all(bootstrap: str, topics: list[NewTopic]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(topics).values():
        future.result(PATIENT_SECONDS)

    def usable(topic: NewTopic) -> bool:
        listed = admin.list_topics(topic.topic, _ASK_SECONDS).topics[topic.topic]
        leaders = [partition.leader for partition in listed.partitions.values()]
        return listed.error is None and len(leaders) == topic.num_partitions and min(leaders) >= 0

    for topic in topics:
        until(lambda topic=topic: usable(topic), PATIENT_SECONDS, f"{topic.topic} can be used")
