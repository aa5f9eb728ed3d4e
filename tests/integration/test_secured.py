"""One client settings file reaches confluent-kafka, aiokafka and Faust on a broker with SASL and TLS."""

import asyncio

import pytest
import trustme
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from spillway.agents.broker import EmbeddedBroker
from spillway.agents.broker.ports import free_port
from spillway.lineage.errors import BrokerError
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from tests.waiting import BROKER_SECONDS

LOGIN = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="ada" password="a=b#c" user_ada="a=b#c";'
)


@pytest.fixture(scope="module")
def tls_files(tmp_path_factory):
    """A certificate authority made for this run (`ca.pem`), and a broker's key and certificate under it."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    leaf = authority.issue_cert("127.0.0.1", "localhost")
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # the only form that Kafka reads
    (folder / "broker.pem").write_bytes(pkcs8 + b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    return folder


@pytest.fixture(scope="module")
def secured(tmp_path_factory, tls_files):
    """A broker with a plain listener, for the tests' own use, and one with TLS and a password."""
    plain, controller, tls = free_port(), free_port(), free_port()
    extra = {
        "listeners": f"BROKER://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},SECURE://127.0.0.1:{tls}",
        "advertised.listeners": f"BROKER://127.0.0.1:{plain},SECURE://127.0.0.1:{tls}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": LOGIN,
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(tls_files / "broker.pem"),
    }
    with EmbeddedBroker(
        tmp_path_factory.mktemp("secured"), port=plain, strict_port=True, extra=extra, start_timeout=BROKER_SECONDS
    ) as broker:
        yield broker.bootstrap, f"127.0.0.1:{tls}"


@pytest.fixture
def settings(secured, tls_files, tmp_path):
    def load(password="a=b#c", authority=tls_files / "ca.pem"):
        file = tmp_path / "client.properties"
        file.write_text(
            f"bootstrap.servers={secured[1]}\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=ada\n"
            f"sasl.password={password}\nssl.ca.location={authority}\n"
        )
        return ClientSettings.load(None, file)

    return load


def test_the_client_gets_in(secured, settings, echo_pipeline):
    pipeline = echo_pipeline(bootstrap=secured[0])
    with Client(pipeline.name, settings(), slo=20.0) as client:
        assert client.predict({"n": 1}).outputs == {"n": 1}


def test_aiokafka_gets_in(secured, settings, echo_pipeline):
    topic = f"{echo_pipeline(bootstrap=secured[0], partitions=1).name}.schemas"
    access = settings().aiokafka()

    async def there_and_back():
        async with AIOKafkaProducer(**access) as producer:
            await producer.send_and_wait(topic, b"value")
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **access) as consumer:
            return (await asyncio.wait_for(consumer.getone(), 20)).value

    assert asyncio.run(there_and_back()) == b"value"


def test_a_wrong_password_is_said(secured, settings, echo_pipeline):
    pipeline = echo_pipeline(bootstrap=secured[0])
    with pytest.raises(BrokerError, match=r"(?i)authentication") as refused:
        Client(pipeline.name, settings("wrong-secret"), timeout=3.0)
    assert "wrong-secret" not in str(refused.value)


def test_a_broker_that_is_not_trusted_is_said(secured, settings, echo_pipeline, tmp_path):
    pipeline = echo_pipeline(bootstrap=secured[0])
    with pytest.raises(BrokerError, match=r"(?i)certificate"):
        Client(pipeline.name, settings(authority="probe"), timeout=3.0)
