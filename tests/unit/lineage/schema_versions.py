"""Other versions of our schemas: the recorded earlier ones, and a next one with more fields everywhere."""

import json
from pathlib import Path

from spillway.lineage.schemas import CONTENTS, DEAD_LETTER, OUTCOME, OWN_TEXTS, QUERY

_FILES = {QUERY: "query.avsc", OUTCOME: "outcome.avsc", DEAD_LETTER: "dead_letter.avsc", CONTENTS: "contents.avsc"}
_HERE = Path(__file__).parent
V0 = {name: (_HERE / "schemas_v0" / file).read_text() for name, file in _FILES.items()}
# Until timings had arrivals.
V1 = {name: (_HERE / "schemas_v1" / _FILES[name]).read_text() for name in (QUERY, OUTCOME)}


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
