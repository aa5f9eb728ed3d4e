"""Our own Avro schemas: the .avsc files beside this module, put together, parsed and fingerprinted once."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final

import avro.schema

MARKER: Final = b"\xc3\x01"  # what starts an Avro single-object encoding
FINGERPRINT_BYTES: Final = 8
HEADER_BYTES: Final = len(MARKER) + FINGERPRINT_BYTES

QUERY: Final = "spillway.Query"
OUTCOME: Final = "spillway.Outcome"
DEAD_LETTER: Final = "spillway.DeadLetter"
WORD: Final = "spillway.Word"
MANIFEST: Final = "spillway.Manifest"
CONTENTS: Final = "spillway.Contents"
FENCE: Final = "spillway.Fence"
BASE: Final = "spillway.Base"
CLAIM: Final = "spillway.Claim"
BEAT: Final = "spillway.Beat"
REPORT: Final = "spillway.Report"
YIELD: Final = "spillway.Yield"
# What a stateful shard writes of itself, and what is said of its members.
REPLICATION: Final = (MANIFEST, CONTENTS, FENCE, BASE, CLAIM, BEAT, REPORT, YIELD)
# Those by which versions are judged: each ends in a checksum over all of itself.
CHECKED: Final = frozenset({MANIFEST, FENCE, BASE, CLAIM, YIELD})

_FILES = {
    QUERY: "query.avsc",
    OUTCOME: "outcome.avsc",
    DEAD_LETTER: "dead_letter.avsc",
    WORD: "word.avsc",
    "spillway.Value": "value.avsc",
    "spillway.Tensor": "tensor.avsc",
    "spillway.StageTiming": "stage_timing.avsc",
    MANIFEST: "manifest.avsc",
    CONTENTS: "contents.avsc",
    FENCE: "fence.avsc",
    BASE: "base.avsc",
    CLAIM: "claim.avsc",
    BEAT: "beat.avsc",
    REPORT: "report.avsc",
    YIELD: "yield.avsc",
    "spillway.Link": "link.avsc",
    "spillway.Mark": "mark.avsc",
    "spillway.ChunkTable": "chunk_table.avsc",
    "spillway.Records": "records.avsc",
    "spillway.Checksum": "checksum.avsc",
}


def _inlined(schema: Any, seen: set[str]) -> Any:
    """`schema` with each type of a file of its own written out where it is first named, as Avro wants it."""
    if isinstance(schema, str) and schema in _FILES and schema not in seen:
        seen.add(schema)
        return _inlined(json.loads(files(__package__).joinpath(_FILES[schema]).read_text("utf-8")), seen)
    if isinstance(schema, list):
        return [_inlined(branch, seen) for branch in schema]
    if isinstance(schema, dict):
        return {
            key: _inlined(part, seen) if key in {"type", "items", "values", "fields"} else part
            for key, part in schema.items()
        }
    return schema


def text_of(name: str) -> str:
    """The self-contained schema, as JSON text, of one of our own types (a full name such as `spillway.Query`)."""
    return json.dumps(_inlined(name, set()))


def fingerprint_of(schema: avro.schema.Schema) -> bytes:
    """The CRC-64-AVRO (Rabin) fingerprint of the schema's parsing canonical form, as single-object encoding has it."""
    fingerprint: bytes = schema.fingerprint("CRC-64-AVRO")
    return fingerprint


OWN_TEXTS: Final[dict[str, str]] = {name: text_of(name) for name in (QUERY, OUTCOME, DEAD_LETTER, WORD, *REPLICATION)}
OWN_PARSED: Final[dict[str, avro.schema.Schema]] = {name: avro.schema.parse(text) for name, text in OWN_TEXTS.items()}
OWN_FINGERPRINTS: Final[dict[str, bytes]] = {name: fingerprint_of(schema) for name, schema in OWN_PARSED.items()}
OWN_SCHEMAS: Final[dict[bytes, str]] = {OWN_FINGERPRINTS[name]: text for name, text in OWN_TEXTS.items()}
"""Fingerprint -> schema as JSON text: what a writer registers before it writes."""
