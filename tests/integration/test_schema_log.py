"""The log of schemas: each is registered once, and clients understand writers of other versions by it."""

import json

from confluent_kafka import Producer

from spillway.lineage.message import PREDICTION, Outcome
from spillway.lineage.schemas import HEADER_BYTES, MARKER, OUTCOME, OWN_SCHEMAS, OWN_TEXTS, SchemaBook
from spillway.lineage.values.codec import encode_outcome
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from spillway.producers.kafka.reading import Reading
from spillway.producers.schema_log import SchemaLog
from tests.waiting import PATIENT_SECONDS


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
    with Reading(settings, [(f"{pipeline.name}.schemas", 0)]) as reading:
        records = [(bytes.fromhex(record.key.decode()), record.value.decode()) for record in reading.to_the_end()]
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
