import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from spillway.lineage.errors import BrokerError, UsageError
from spillway.producers import cluster
from spillway.producers.client import AsyncClient
from spillway.producers.client.queries import QueryMaker
from spillway.producers.cluster import ProducerLog, idempotent_producer, require_listening
from spillway.producers.connection import ClientSettings
from spillway.producers.patience import AnswerTime, patiently
from tests import mock_cluster

SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "u",
    "sasl.password": "geheim",
}


def test_a_plain_cluster_needs_only_its_address():
    settings = ClientSettings.load("localhost:9092")
    confluent = settings.confluent()
    assert confluent.pop("bootstrap.servers") == "localhost:9092"
    # What every client has: it is back soon at a broker that is back, where librdkafka's own wait grows to ten seconds.
    assert confluent.pop("socket.timeout.ms") == 6_000
    assert max(confluent.values()) <= 500
    assert all(".backoff." in key for key in confluent)
    assert settings.aiokafka() == {"bootstrap_servers": ["localhost:9092"], "security_protocol": "PLAINTEXT"}


def test_several_addresses_reach_every_client():
    settings = ClientSettings(bootstrap="a:1, [::1]:2")
    assert settings.confluent()["bootstrap.servers"] == "a:1,[::1]:2"
    assert settings.aiokafka()["bootstrap_servers"] == ["a:1", "[::1]:2"]


@pytest.mark.parametrize("bootstrap", ["localhost", "localhost:", "a:0", "a:70000", "kafka://a:1", "a:1,,b:2", "a b:1"])
def test_an_address_that_is_none_is_refused(bootstrap):
    with pytest.raises(UsageError, match="HOST:PORT"):
        ClientSettings(bootstrap=bootstrap)


def test_no_address_at_all_says_how_to_give_one(monkeypatch):
    monkeypatch.delenv("SPILLWAY_BOOTSTRAP", raising=False)
    with pytest.raises(UsageError, match="SPILLWAY_BOOTSTRAP"):
        ClientSettings.load()


@pytest.mark.parametrize(("inputs", "parameters"), [([1], None), (None, None), ("Ada", None), ({}, [1])])
def test_a_query_without_names_is_refused(inputs, parameters):
    maker = QueryMaker("p", slo=1.0, grace=1.0)
    with pytest.raises(UsageError, match=r"of a query are values by name, as in {'name': 'Ada'}, not a "):
        maker.prepare(inputs, parameters, None, None, None, None, None)


def test_what_is_not_said_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("SPILLWAY_BOOTSTRAP", "there:1")
    assert ClientSettings.load().bootstrap == "there:1"
    assert ClientSettings.load("told:2").bootstrap == "told:2"
    file = tmp_path / "c.properties"
    file.write_text("security.protocol=SSL")
    monkeypatch.setenv("SPILLWAY_CLIENT_CONFIG", str(file))
    assert ClientSettings.load() == ClientSettings(bootstrap="there:1", properties={"security.protocol": "SSL"})
    assert ClientSettings.load("told:2").properties == {}  # another cluster, which the file is not for
    file.write_text("bootstrap.servers=listed:3")
    assert ClientSettings.load().bootstrap == "listed:3"


@pytest.mark.parametrize("settings", [None, "there:1", ClientSettings(bootstrap="there:1")])
def test_a_client_takes_settings_or_an_address_or_the_environments(monkeypatch, settings):
    monkeypatch.setenv("SPILLWAY_BOOTSTRAP", "there:1")
    assert AsyncClient("p", settings)._settings.bootstrap == "there:1"


@pytest.mark.parametrize(
    ("name", "text"),
    {
        "c.properties": (
            "# mine\nbootstrap.servers=f:1\nsecurity.protocol=sasl_plaintext\nsasl.mechanisms=plain\n"
            "sasl.username = u\nsasl.password=a=#b\\\n"
        ),
        "c.yaml": (
            "bootstrap.servers: f:1\nsecurity.protocol: SASL_PLAINTEXT\nsasl.mechanism: PLAIN\n"
            "sasl.username: u\nsasl.password: 'a=#b\\'\n"
        ),
        "c.json": (
            '{"bootstrap.servers": "f:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",'
            ' "sasl.username": "u", "sasl.password": "a=#b\\\\"}'
        ),
    }.items(),
)
def test_every_file_form_gives_the_same_settings(tmp_path, name, text):
    file = tmp_path / name
    file.write_text(text)
    settings = ClientSettings.load(None, file)
    assert settings.bootstrap == "f:1"
    assert settings.aiokafka()["sasl_plain_password"] == "a=#b\\"
    assert settings.confluent()["sasl.password"] == "a=#b\\"
    assert ClientSettings.load("other:2", file).bootstrap == "other:2"


def test_a_numeric_password_in_yaml_stays_as_written(tmp_path):
    file = tmp_path / "c.yml"
    file.write_text(
        "security.protocol: SASL_PLAINTEXT\nsasl.mechanism: PLAIN\nsasl.username: 007\nsasl.password: 0123\n"
    )
    assert ClientSettings.load("a:1", file).properties["sasl.password"] == "0123"


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"sasl.usrname": "u"}, "did you mean sasl.username"),
        ({"fetch.max.bytes": "1"}, "unknown client property"),
        ({"sasl.jaas.config": "x"}, "sasl.username and sasl.password"),
        ({"security.protocol": "TLS"}, "use one of PLAINTEXT, SSL"),
        ({"sasl.username": "u"}, "set security.protocol"),
        ({"ssl.ca.location": "x"}, "set security.protocol"),
        ({**SASL, "ssl.ca.location": "x"}, "ssl.ca.location has no effect"),
        ({"security.protocol": "SASL_SSL"}, "needs sasl.mechanism and sasl.username and sasl.password"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "use one of PLAIN"),
        ({"security.protocol": "SSL", "ssl.key.location": "x"}, "go together"),
        ({**SASL, "sasl.password": ""}, "is empty"),
        ({"socket.timeout.ms": "6 s"}, "give milliseconds, 2000 or more"),
        ({"socket.timeout.ms": "500"}, "give milliseconds, 2000 or more"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(properties, message):
    with pytest.raises(UsageError, match=message):
        ClientSettings(bootstrap="a:1", properties=properties)


def test_a_broker_that_stands_still_is_given_up_as_told():
    slow = ClientSettings(bootstrap="a:1", properties={"socket.timeout.ms": "60000"})
    assert slow.confluent()["socket.timeout.ms"] == "60000"


def test_a_file_error_names_the_file_and_never_the_secret(tmp_path):
    file = tmp_path / "c.properties"
    file.write_text("sasl.password=geheim\n")
    with pytest.raises(UsageError) as refused:
        ClientSettings.load("a:1", file)
    assert str(file) in str(refused.value)
    assert "geheim" not in str(refused.value)
    with pytest.raises(UsageError, match=r"none\.properties"):
        ClientSettings.load("a:1", tmp_path / "none.properties")
    file.write_text("a=1\nnonsense\n")
    with pytest.raises(UsageError, match=":2: no 'key=value'"):
        ClientSettings.load("a:1", file)


def test_a_secret_is_never_printed_and_survives_a_process_boundary():
    settings = ClientSettings(bootstrap="a:1", properties=SASL)
    assert "geheim" not in f"{settings} {settings!r} {[settings]}"
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_tls_reaches_every_client():
    settings = ClientSettings(bootstrap="a:1", properties={"security.protocol": "ssl"})
    context = settings.aiokafka()["ssl_context"]
    assert context.check_hostname
    assert settings.confluent()["security.protocol"] == "SSL"
    lax = ClientSettings(
        bootstrap="a:1", properties={"security.protocol": "SSL", "enable.ssl.certificate.verification": "False"}
    )
    assert not lax.ssl_context().check_hostname


def test_a_missing_tls_file_is_named():
    settings = ClientSettings(bootstrap="a:1", properties={"security.protocol": "SSL", "ssl.ca.location": "/none.pem"})
    with pytest.raises(UsageError, match=r"/none\.pem"):
        settings.aiokafka()


# Calls are asked again while what ails them passes, and given up with words.


class Broker:
    """Fails with each of `codes` in turn, then answers; time goes on with each call."""

    def __init__(self, monkeypatch, *codes):
        self.codes = list(codes)
        self.now = 0.0
        self.given = []
        monkeypatch.setattr("spillway.producers.patience.time.monotonic", lambda: self.now)
        monkeypatch.setattr("spillway.producers.patience.time.sleep", lambda seconds: None)

    def ask(self, seconds):
        self.given.append(seconds)
        self.now += seconds
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return "answer"


@pytest.mark.parametrize(
    "codes",
    [
        (KafkaError._TIMED_OUT, KafkaError.NOT_LEADER_FOR_PARTITION),
        (KafkaError._DESTROY_BROKER,),  # the connection was replaced, as where the only broker restarts
        (KafkaError._NOENT,),  # no leader, as where offsets are listed while the only broker starts
    ],
)
def test_what_passes_is_asked_again(monkeypatch, codes):
    assert patiently(Broker(monkeypatch, *codes).ask, "ask", 10) == "answer"


def test_what_does_not_pass_is_said_at_once(monkeypatch):
    broker = Broker(monkeypatch, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError, match=r"could not ask: .*TOPIC_AUTHORIZATION_FAILED"):
        patiently(broker.ask, "ask", 10)


@pytest.mark.parametrize(
    ("code", "within", "given"), [(KafkaError._TRANSPORT, 3, [1, 1, 1]), (KafkaError._TIMED_OUT, 14, [1, 2, 4, 5, 2])]
)
def test_patience_ends_and_who_answers_late_is_given_more_time_until_then(monkeypatch, code, within, given):
    broker = Broker(monkeypatch, *[code] * 100)
    with pytest.raises(BrokerError, match=f"could not ask within {within} s"):
        patiently(broker.ask, "ask", within)
    assert broker.given == given


def test_what_an_answer_took_is_what_the_next_is_expected_to_take():
    given = AnswerTime()
    assert given.seconds == 1
    for _ in range(3):
        given.late()
    assert given.seconds == 5
    given.answered(1.5)
    assert given.seconds == 3
    given.answered(0.001)
    assert given.seconds == 1


# What an idempotent producer is made ready for before its first message.

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
from spillway.producers import cluster
from spillway.producers.connection import ClientSettings
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


def test_an_address_where_nothing_listens_is_an_error_unless_another_listens():
    with socket.socket() as listening, socket.socket() as silent:
        for each in (listening, silent):
            each.bind(("127.0.0.1", 0))
        listening.listen()
        there, nowhere = (f"127.0.0.1:{each.getsockname()[1]}" for each in (listening, silent))
        require_listening(f"PLAINTEXT://{nowhere}, {there}", 0.0)
        require_listening(f"{nowhere},no.such.host.invalid:9092", 0.0)  # librdkafka says more of that
        with pytest.raises(BrokerError, match=rf"cannot reach Kafka at {nowhere}: nothing listens there; start a"):
            require_listening(nowhere, 0.0)
