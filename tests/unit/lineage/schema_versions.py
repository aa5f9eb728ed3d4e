"""Other versions of our schemas: one that lacks fields, and a next one with more fields everywhere."""

import io
import json

import avro.schema
import fastavro

from spillway.lineage.schemas import (
    CONTENTS,
    DEAD_LETTER,
    MARKER,
    OUTCOME,
    OWN_TEXTS,
    QUERY,
    SchemaBook,
    fingerprint_of,
)
from spillway.lineage.values.codec import Decoder

_LACKS = {
    "Query": {"timings", "flags"},
    "Outcome": {"text", "flags"},
    "StageTiming": {"waited", "model", "version", "arrived"},
    "DeadLetter": {"text", "key", "headers"},
    "Contents": {"inputs", "later", "data"},
}


def _lacking(schema):
    if isinstance(schema, list):
        return [_lacking(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    less = {key: _lacking(part) if key in {"type", "items", "values"} else part for key, part in schema.items()}
    if schema.get("type") == "record":
        lacks = _LACKS.get(schema["name"], ())
        less["fields"] = [_lacking(field) for field in schema["fields"] if field["name"] not in lacks]
    return less


# As a version writes that does not know these fields yet: a reader takes their defaults.
LESS = {name: json.dumps(_lacking(json.loads(OWN_TEXTS[name]))) for name in (QUERY, OUTCOME, DEAD_LETTER, CONTENTS)}


def _extended(schema):
    if isinstance(schema, list):
        return [_extended(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    grown = {key: _extended(part) if key in {"type", "items", "values"} else part for key, part in schema.items()}
    if schema.get("type") == "record":
        fields = [_extended(field) for field in schema["fields"]]
        new = {"name": "added", "type": ["null", "string"], "default": None}
        more = {"name": "extras", "type": {"type": "map", "values": {"type": "array", "items": "long"}}, "default": {}}
        grown["fields"] = [new, *_before_checksum(fields, more)] if schema["name"] != "Tensor" else [*fields, more]
    return grown


def _before_checksum(fields, field):
    """A new field stands before the checksum, which is the last in every version."""
    at = len(fields) - (fields[-1]["name"] == "checksum")
    return [*fields[:at], field, *fields[at:]]


def _with_values(schema):
    """A field at the end that holds values, tensors among them, which a reader has to skip."""
    if any("spillway.Value" in json.dumps(field) for field in schema["fields"]):
        field = {"name": "context", "type": {"type": "map", "values": "spillway.Value"}, "default": {}}
        schema["fields"] = _before_checksum(schema["fields"], field)
    return schema


NEXT = {name: json.dumps(_with_values(_extended(json.loads(text)))) for name, text in OWN_TEXTS.items()}


def _twin(text):
    schema = json.loads(text)
    schema["fields"] = _before_checksum(schema["fields"], {"name": "nothing", "type": "null", "default": None})
    return json.dumps(schema)


# Another fingerprint, the same bytes: what takes the way of foreign schemas through the decoder.
TWINS = {name: _twin(text) for name, text in OWN_TEXTS.items()}


def written_with(schema, record):
    """A record as a writer with this schema, a JSON text, encodes it."""
    stream = io.BytesIO()
    stream.write(MARKER + fingerprint_of(avro.schema.parse(schema)))
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(schema)), record)
    return stream.getvalue()


def reader_of(*schemas):
    """A decoder that knows these writers' schemas beside our own."""
    book = SchemaBook()
    for schema in schemas:
        assert book.writer(book.add(schema)) is not None
    return Decoder(book=book)
