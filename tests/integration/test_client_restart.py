"""The client while its broker goes away and comes back, and with writers of other versions."""

import json
import threading
import time
from collections import Counter
from concurrent.futures import wait

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from agents.broker import EmbeddedBroker
from lineage.message import PREDICTION, Outcome
from lineage.schemas import HEADER_BYTES, MARKER, OUTCOME, OWN_SCHEMAS, OWN_TEXTS, SchemaBook
from lineage.values.codec import encode_outcome
from producers.client import Client
from producers.connection import ClientSettings
from producers.schema_log import SchemaLog
from tests.waiting import BROKER_SECONDS, PATIENT_SECONDS, Bound

# What is asked while the broker is away is worked off behind it, within an SLO that says nothing of the machine's pace:
# thousands, as many as fit into the time that it is away, took a machine with other work 70 s.
IN_FLIGHT = 500


@pytest.fixture
def own_broker(tmp_path):
    with EmbeddedBroker(tmp_path / "kafka", start_timeout=BROKER_SECONDS) as broker:
        yield broker


@pytest.mark.parametrize("transactional", [False, True])
def test_a_broker_restart_costs_no_query(own_broker, echo_pipeline, transactional):
    pipeline = echo_pipeline(bootstrap=own_broker.bootstrap, transactional=transactional)
    futures = []
    room = threading.Semaphore(IN_FLIGHT)
    stop = threading.Event()
    with Client(pipeline.name, ClientSettings.load(own_broker.bootstrap), slo=PATIENT_SECONDS) as client:

        def ask():
            while not stop.is_set():
                if room.acquire(timeout=0.1):
                    futures.append(client.submit({"n": len(futures)}))
                    futures[-1].add_done_callback(lambda _: room.release())
                    time.sleep(0.005)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            futures_before = 50
            while len(futures) < futures_before:
                time.sleep(0.01)
            own_broker.stop()
            own_broker.start()
            asked = len(futures)
            bound = Bound(120)
            while len(futures) <= asked or not futures[asked].done():  # something asked after the restart is answered
                assert not bound.over
                time.sleep(0.05)
        finally:
            stop.set()
            asking.join()
        wait(futures, 90)
        failures = {n: failure for n, future in enumerate(futures) if (failure := future.exception(0)) is not None}
        heard = {int(headers.request_id.rpartition("-")[2]) for headers, _, _ in pipeline.heard}
        why = Counter(
            f"{type(failure).__name__}, {'heard' if n in heard else 'unheard'}" for n, failure in failures.items()
        )
        assert not failures, f"{why} of {len(futures)}: {failures}"
        assert [future.result(0).outputs["n"] for future in futures] == list(range(len(futures)))
    assert len({headers.request_id for headers, _, _ in pipeline.heard}) == len(pipeline.heard) == len(futures)


def newer(text):
    """The schema as a later version might have it: with one field more."""
    schema = json.loads(text)
    schema["fields"].append({"name": "later", "type": "string", "default": ""})
    return json.dumps(schema)


def test_writers_register_their_schemas_once(echo_pipeline, broker):
    pipeline = echo_pipeline()
    settings = ClientSettings.load(broker)
    for _ in range(3):
        SchemaLog(settings, pipeline.name).open()
    reader = Consumer({"bootstrap.servers": broker, "group.id": "x", "enable.partition.eof": True})
    reader.assign([TopicPartition(f"{pipeline.name}.schemas", 0, 0)])
    records = []
    while (message := reader.poll(10)) is not None and message.error() is None:
        records.append((bytes.fromhex(message.key().decode()), message.value().decode()))
    reader.close()
    assert sorted(records) == sorted(OWN_SCHEMAS.items())


def test_a_newer_writer_is_understood_once_it_has_registered(echo_pipeline, broker):
    text = newer(OWN_TEXTS[OUTCOME])
    fingerprint = SchemaBook().add(text)
    own = encode_outcome(Outcome(PREDICTION, {"n": 1}))
    body = MARKER + fingerprint + own[HEADER_BYTES:] + b"\x00"

    pipeline = echo_pipeline(lambda query, headers: [])
    settings = ClientSettings.load(broker)
    with Client(pipeline.name, settings, slo=PATIENT_SECONDS) as client:
        future = client.submit({}, request_id="q")
        SchemaLog(settings, pipeline.name).open({fingerprint: text})
        producer = Producer({"bootstrap.servers": broker})
        producer.produce(f"{pipeline.name}.egress", body, headers=[("x-request-id", b"q")])
        producer.flush()
        assert future.result(PATIENT_SECONDS).outputs == {"n": 1}


def test_rubbish_in_the_schema_log_does_no_harm(echo_pipeline, broker, caplog):
    pipeline = echo_pipeline()
    producer = Producer({"bootstrap.servers": broker})
    for key, value in ((b"\xff", b"{}"), (b"00" * 8, b"no json"), (None, b"x"), (b"11" * 8, None)):
        producer.produce(f"{pipeline.name}.schemas", value, key)
    producer.flush()
    book = SchemaLog(ClientSettings.load(broker), pipeline.name).open()
    assert len(book) == len(SchemaBook())
    assert "cannot be used" in caplog.text
