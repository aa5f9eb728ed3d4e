"""Queries counted by the offsets of a real ingress, while nobody reads it."""

import time

from confluent_kafka import Producer

from spillway.agents.live.ingress import Ingress
from spillway.agents.live.topics import ensure
from spillway.producers.connection import ClientSettings
from spillway.topology.load import parse
from spillway.topology.topics import ingress, topic_plan
from tests.waiting import until


def test_all_queries_are_counted_and_when_they_came_is_known_afterwards(broker, unique_name):
    settings = ClientSettings(bootstrap=broker)
    spec = parse(f"{{name: {unique_name}, slo: 1, partitions: 4, stages: [{{name: a, model: 'm:M'}}]}}").spec
    ensure(settings, topic_plan(spec))
    producer, counts = Producer(settings.confluent()), Ingress(settings, unique_name, spec.partitions)
    try:
        until(lambda: counts.total() == 0, 30.0, "an empty ingress")
        assert {total for _, total in counts.history(5)} == {0}
        for n in range(100):
            producer.produce(ingress(unique_name), b"x", key=str(n))
        assert producer.flush(30) == 0
        told = time.monotonic()
        until(lambda: counts.total() == 100, 30.0, "all are counted")
        time.sleep(2.5)  # the history is by whole seconds
        passed = int(time.monotonic() - told)
        history = dict(counts.history(passed + 4))
        assert list(history) == [float(age) for age in range(passed + 4, 0, -1)]
        assert list(history.values()) == sorted(history.values())
        assert history[1.0] == 100
    finally:
        counts.close()


def test_a_cluster_that_does_not_answer_is_no_count():
    counts = Ingress(ClientSettings(bootstrap="127.0.0.1:1"), "p", 2)
    try:
        assert (counts.total(), counts.history(3)) == (None, [])
    finally:
        counts.close()
