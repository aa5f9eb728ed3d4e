"""The writers' schemas that a reader knows, by fingerprint: our own, and those that newer or older writers register."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import avro.errors
import avro.schema
import fastavro
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.limits import too_large

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable


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


def _file_of(name: str) -> Traversable:
    """Where a type's schema would be: `spillway.ChunkTable` in chunk_table.avsc."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removeprefix("spillway."))
    return files(__package__).joinpath(f"{words.lower()}.avsc")


def _inlined(schema: Any, seen: set[str]) -> Any:
    """`schema` with each type of a file of its own written out where it is first named, as Avro wants it."""
    if isinstance(schema, str) and schema.startswith("spillway.") and schema not in seen:
        seen.add(schema)
        return _inlined(json.loads(_file_of(schema).read_text("utf-8")), seen)
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


MAX_SCHEMA_BYTES: Final = 16 << 10
MAX_SCHEMAS: Final = 64


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A writer's schema that our reader's of the same name can read."""

    name: str  # the reader's, e.g. spillway.lineage.schemas.QUERY
    canonical: Any  # its parsing canonical form, as parsed JSON
    named: Mapping[str, Any]  # the named types in it
    fast: Any  # the canonical form as parsed by fastavro


class SchemaBook:
    """Writers' schemas by fingerprint; our own are always in it. Bounded: a hostile writer cannot fill the memory.

    Not safe for use from several threads at once while `add` is called.
    """

    def __init__(self) -> None:
        self._schemas = dict(_own_schemas())

    def __len__(self) -> int:
        return len(self._schemas)

    def writer(self, fingerprint: bytes) -> WriterSchema | None:
        return self._schemas.get(fingerprint)

    def add(self, text: str) -> bytes:
        """Learn a writer's schema and return its fingerprint; one that is known already changes nothing.

        Raises WireError(UNKNOWN_SCHEMA) for a text that is no Avro schema, is of none of our message types or cannot
        be read as one, and WireError(TOO_LARGE) when it or the book would be over its bound.
        """
        if len(text) > MAX_SCHEMA_BYTES:
            raise too_large(f"a schema of {len(text)} characters", MAX_SCHEMA_BYTES)
        try:
            schema = avro.schema.parse(text)
            fingerprint = fingerprint_of(schema)
            if fingerprint in self._schemas:
                return fingerprint
            learnt = _writer_schema(_reader_of(schema), schema)
        # Hostile JSON makes the parser fail in ways without a common root (KeyError, TypeError, RecursionError, ...).
        except Exception as error:
            if isinstance(error, WireError):
                raise
            raise WireError(reasons.UNKNOWN_SCHEMA, f"not an Avro schema: {str(error)[:200]}") from error
        if len(self._schemas) >= MAX_SCHEMAS:
            raise too_large(f"a book of {MAX_SCHEMAS + 1} writers' schemas", MAX_SCHEMAS)
        self._schemas[fingerprint] = learnt
        return fingerprint


FAST_READERS: Final[Mapping[str, Any]] = {
    name: fastavro.parse_schema(schema.to_json()) for name, schema in OWN_PARSED.items()
}
"""Our own schemas as fastavro has them, by name."""


@cache
def _own_schemas() -> Mapping[bytes, WriterSchema]:
    """Our own schemas by fingerprint, made once: with the very schema of the reader there is nothing to resolve."""
    return {
        OWN_FINGERPRINTS[name]: replace(_writer_schema(name, schema), fast=FAST_READERS[name])
        for name, schema in OWN_PARSED.items()
    }


def _writer_schema(name: str, schema: avro.schema.Schema) -> WriterSchema:
    # The canonical form, which the fingerprint stands for, has no logical types, aliases and defaults: none of
    # these may change how the bytes are read.
    canonical = schema.to_canonical_json()
    named: dict[str, Any] = {}
    _collect_names(canonical, named)
    return WriterSchema(name, canonical, named, fastavro.parse_schema(canonical))


def _collect_names(schema: Any, named: dict[str, Any]) -> None:
    if isinstance(schema, list):
        for branch in schema:
            _collect_names(branch, named)
    elif isinstance(schema, dict):
        if "name" in schema:
            named[schema["name"]] = schema
        for part in schema.get("fields", ()):
            _collect_names(part["type"], named)
        for key in ("items", "values"):
            if key in schema:
                _collect_names(schema[key], named)


def _reader_of(schema: avro.schema.Schema) -> str:
    name = getattr(schema, "fullname", None)
    if name not in OWN_FINGERPRINTS:
        raise WireError(
            reasons.UNKNOWN_SCHEMA, f"a schema named {name!r:.80} is not one of {', '.join(OWN_FINGERPRINTS)}"
        )
    verdict = ReaderWriterCompatibilityChecker().get_compatibility(reader=OWN_PARSED[name], writer=schema)
    if verdict.compatibility is not SchemaCompatibilityType.compatible:
        why = "; ".join(sorted(verdict.messages))[:200]
        raise WireError(reasons.UNKNOWN_SCHEMA, f"a writer's {name} that ours cannot read: {why}")
    return str(name)
