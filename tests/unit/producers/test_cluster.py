"""What an idempotent producer is made ready for before its first message."""

from producers import cluster
from producers.cluster import idempotent_producer
from producers.connection import ClientSettings


class FakeProducer:
    def __init__(self, config, logger=None):
        self.config = config
        self.looked_up = []

    def list_topics(self, topic, timeout):
        assert 0 < timeout <= 2.0
        self.looked_up.append(topic)


def test_every_topic_is_looked_up(monkeypatch):
    monkeypatch.setattr(cluster, "Producer", FakeProducer)
    made = idempotent_producer(ClientSettings.load("b:1"), "state", 5.0, {"linger.ms": 0}, also=("versions",))
    assert made.looked_up == ["state", "versions"]
    assert made.config["linger.ms"] == 0
