"""What an idempotent producer is made ready for before its first message."""

import subprocess
import sys
from pathlib import Path

import pytest

from producers import cluster
from producers.cluster import ProducerLog, idempotent_producer
from producers.connection import ClientSettings
from tests import mock_cluster

ROOT = Path(__file__).parents[3]
SETTINGS = ClientSettings.load("b:1")


class FakeProducer:
    def __init__(self, config, logger):
        self.config = config
        self.logger = logger
        self.looked_up = []

    def list_topics(self, topic, timeout):
        assert 0 < timeout <= 2.0
        self.looked_up.append(topic)

    def poll(self, _seconds):
        self.logger.log(10, "%s [%s] %s", "IDEMPSTATE", "p", "state change WaitPID -> Assigned")


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    monkeypatch.setattr(cluster, "Producer", FakeProducer)


def test_every_topic_is_looked_up():
    made = idempotent_producer(SETTINGS, "state", 5.0, {"linger.ms": 0}, also=("versions",))
    assert made.looked_up == ["state", "versions", "state"]
    assert made.config["linger.ms"] == 0


@pytest.mark.parametrize("words", ["producer id acquired", "state change WaitPID -> Has it"])
def test_one_whose_log_is_worded_otherwise_is_used_all_the_same(monkeypatch, words):
    monkeypatch.setattr(cluster, "ID_SECONDS", 0.1)
    monkeypatch.setattr(
        FakeProducer, "poll", lambda made, _: made.logger.log(10, "%s [%s] %s", "IDEMPSTATE", "p", words)
    )
    made = idempotent_producer(SETTINGS, "state", 5.0, {})
    assert set(made.looked_up) == {"state"}


def test_a_transactional_one_gets_its_id_later(monkeypatch):
    monkeypatch.setattr(FakeProducer, "poll", lambda *_: None)
    assert idempotent_producer(SETTINGS, "state", 5.0, {"transactional.id": "t"}).looked_up == ["state"]


def test_an_id_may_be_lost_again():
    said = ProducerLog()
    for state, has_id in (("WaitPID -> Assigned", True), ("Assigned -> DrainBump", False)):
        said.log(10, "%s [%s] %s", "IDEMPSTATE", "p", f"Idempotent producer state change {state}")
        said.log(10, "%s [%s] %s", "FAIL", "p", "Disconnected -> Assigned")
        assert said.has_id is has_id


FRESH = """
from producers import cluster
from producers.connection import ClientSettings
from tests.mock_cluster import INIT_PRODUCER_ID, MockCluster
mock = MockCluster()
mock.topic("t", 4)
logs = []
class Log(cluster.ProducerLog):
    def __init__(self):
        super().__init__()
        logs.append(self)
cluster.ProducerLog = Log
COORDINATOR_LOAD_IN_PROGRESS = 14
for number in range(50):
    if number % 10 == 0:
        mock.answer_with(INIT_PRODUCER_ID, COORDINATOR_LOAD_IN_PROGRESS)
    cluster.idempotent_producer(ClientSettings(bootstrap=mock.bootstrap), "t", 60.0, {})
print(len(logs), sum(log.has_id for log in logs))
"""


@pytest.mark.skipif(not mock_cluster.available(), reason="this system does not tell which libraries are loaded")
def test_librdkafka_says_of_each_of_50_fresh_producers_that_it_has_its_id():
    done = subprocess.run(
        [sys.executable, "-c", FRESH], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout.split() == ["50", "50"], done.stderr
