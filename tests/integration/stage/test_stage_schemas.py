"""A writer with a schema of its own registers it first; a running stage that meets it looks it up."""

import io
import json

import avro.schema
import fastavro
from confluent_kafka import Producer

from spillway.lineage import reasons
from spillway.lineage.limits import Limits
from spillway.lineage.schemas import MARKER, OWN_SCHEMAS, SchemaBook
from spillway.lineage.values.structures import pack_map
from spillway.topology.topics import schemas


def foreign_writer():
    """A query's schema as another version might have it, with a field more; the encoder for it, and its text."""
    schema = next(read for text in OWN_SCHEMAS.values() if (read := json.loads(text))["name"] == "Query")
    schema["fields"].append({"name": "colour", "type": "string", "default": "red"})
    return json.dumps(schema)


def encode(text, record):
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(text)), record)
    fingerprint = avro.schema.parse(text).fingerprint("CRC-64-AVRO")
    return MARKER + bytes(fingerprint), body.getvalue()


def test_a_schema_registered_while_the_stage_runs_is_found(stage):
    one = stage("partitions: 1\nstages:\n  - {name: s, model: 'stage_models:Square'}\n")
    one.start("s")
    one.send("a", {"x": 1})
    one.flush()
    out = one.reader("outcomes")
    out.wait(1)
    text = foreign_writer()
    book = SchemaBook()
    fingerprint = book.add(text)
    header, body = encode(
        text, {"inputs": pack_map({"x": 5}, Limits(), [9]), "parameters": {}, "timings": [], "colour": "blue"}
    )
    assert header[2:] == fingerprint
    producer = Producer({"bootstrap.servers": one.bootstrap})
    producer.produce(schemas(one.name), text.encode(), fingerprint.hex())
    producer.flush(10)
    one.send("b", {}, value=header + body)
    one.send("c", {}, value=MARKER + b"unknown!" + body)
    one.flush()
    out.wait(3)
    found = {told.request_id: (outcome.reason, outcome.outputs.get("y")) for told, outcome in out.outcomes()}
    assert found == {"a": ("", 1), "b": ("", 25), "c": (reasons.UNKNOWN_SCHEMA, None)}
