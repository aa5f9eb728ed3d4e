"""What a group has committed is asked so that no answer of a broker ends the process, as one of them ends librdkafka's.

The clusters are librdkafka's own mocks, each in a process that may be lost.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from spillway.agents.live import committed
from spillway.agents.live.committed import GroupOffsets, Withheld
from tests import mock_cluster

ROOT = Path(__file__).parents[3]
BEGIN = f"""
from confluent_kafka import KafkaError, KafkaException
from tests.mock_cluster import OFFSET_FETCH, MockCluster
from spillway.producers.connection import ClientSettings
cluster = MockCluster()
for name in ("p.ingress", "p.outcomes", "p.egress"):
    cluster.topic(name, 2)
settings = ClientSettings(bootstrap=cluster.bootstrap)
REFUSAL = {KafkaError.NOT_COORDINATOR}
"""
ASKED = """
from spillway.agents.live.committed import GroupOffsets
asks = GroupOffsets(settings.confluent(), "p.a")
print(asks.once("p.ingress", [0, 1], 30.0))
cluster.answer_with(OFFSET_FETCH, REFUSAL)
try:
    asks.once("p.ingress", [0, 1], 30.0)
except KafkaException as error:
    print(error.args[0].name())
print(asks.once("p.ingress", [0, 1], 30.0))
"""
LOOKED = """
from spillway.agents.supervise.groups import KafkaGroups, Watched
from spillway.lineage.errors import BrokerError
groups = KafkaGroups(settings, "p", {"a": Watched("p.ingress", (0, 1), only=0)})
print(sorted(groups.look(["a"])["a"].partitions))
cluster.answer_with(OFFSET_FETCH, REFUSAL)
try:
    groups.look(["a"])
except BrokerError as error:
    print(error)
print(sorted(groups.look(["a"])["a"].partitions))
"""
MENDED = """
from spillway.agents.live.gate.stuck_transactions import StuckTransactions
mender = StuckTransactions(settings.confluent(), group="p.gate", outcomes="p.outcomes", outputs=["p.egress"])
cluster.answer_with(OFFSET_FETCH, REFUSAL, REFUSAL, REFUSAL)
mender.mend(None, 60.0)
print("nothing hangs")
"""


def said(program):
    command = [sys.executable, "-c", BEGIN + program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr}"
    return done.stdout.splitlines()


@pytest.mark.skipif(not mock_cluster.available(), reason="this system does not tell which libraries are loaded")
class TestABrokerThatDoesNotCoordinateTheGroup:
    def test_is_asked_again(self):
        nothing = "{0: -1001, 1: -1001}"
        assert said(ASKED) == [nothing, "NOT_COORDINATOR", nothing]

    def test_does_not_end_the_supervisor(self):
        first, refused, again = said(LOOKED)
        assert (first, again) == ("[0, 1]", "[0, 1]")
        assert "Not coordinator" in refused

    def test_does_not_end_a_gate(self):
        assert said(MENDED) == ["nothing hangs"]


class Client:
    """Answers as a broker does, through librdkafka: of an offset that is withheld not at all."""

    def __init__(self, broker, settings):
        self.broker = broker
        self.stable = settings["isolation.level"] == "read_committed"

    def committed(self, places, timeout):
        if self.broker.refusal is not None:
            raise KafkaException(self.broker.refusal)
        if self.stable and self.broker.open & {place.partition for place in places}:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return [TopicPartition(place.topic, place.partition, 10 + place.partition) for place in places]

    def close(self):
        pass


class Broker:
    """What its clients meet."""

    def __init__(self):
        self.open = frozenset()
        self.refusal = None
        self.clients = 0

    def client(self, settings, logger):
        self.clients += 1
        return Client(self, settings)


@pytest.fixture
def broker(monkeypatch):
    made = Broker()
    monkeypatch.setattr(committed, "Consumer", made.client)
    return made


def test_a_client_that_is_answered_is_kept(broker):
    asks = GroupOffsets({}, "g")
    assert [asks.once("t", [0, 1], 1.0) for _ in range(3)] == [{0: 10, 1: 11}] * 3
    assert broker.clients == 1


def test_a_client_that_is_not_answered_is_let_go(broker):
    asks = GroupOffsets({}, "g")
    asks.once("t", [0], 1.0)
    broker.refusal = KafkaError(KafkaError._TRANSPORT)
    with pytest.raises(KafkaException):
        asks.once("t", [0], 1.0)
    broker.refusal = None
    assert asks.once("t", [0], 1.0) == {0: 10}
    assert broker.clients == 2


@pytest.mark.parametrize("held", [set(), {0}, {1, 2}, {0, 1, 2}])
def test_the_partitions_are_found_whose_offsets_are_withheld(broker, held):
    broker.open = frozenset(held)
    assert Withheld({}, "g").once("t", [0, 1, 2], 1.0) == sorted(held)


def test_a_broker_that_is_away_withholds_nothing(broker):
    broker.refusal = KafkaError(KafkaError._TIMED_OUT)
    with pytest.raises(KafkaException):
        Withheld({}, "g").once("t", [0, 1], 1.0)
