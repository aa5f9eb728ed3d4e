"""The writers' schemas that a reader knows, by fingerprint: our own, and those that newer or older writers register."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import avro.errors
import avro.schema
import fastavro
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

from lineage import reasons
from lineage.errors import WireError
from lineage.limits import too_large
from lineage.schemas.own import OWN_FINGERPRINTS, OWN_PARSED, OWN_TEXTS, fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_SCHEMA_BYTES: Final = 16 << 10
MAX_SCHEMAS: Final = 64


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A writer's schema that our reader's of the same name can read."""

    name: str  # the reader's, e.g. lineage.schemas.QUERY
    canonical: Any  # its parsing canonical form, as parsed JSON
    named: Mapping[str, Any]  # the named types in it
    fast: Any  # the canonical form as parsed by fastavro


class SchemaBook:
    """Writers' schemas by fingerprint; our own are always in it. Bounded: a hostile writer cannot fill the memory.

    Not safe for use from several threads at once while `add` is called.
    """

    def __init__(self) -> None:
        self._schemas: dict[bytes, WriterSchema] = {}
        for name, schema in OWN_PARSED.items():
            # With the very schema of the reader there is nothing to resolve.
            self._schemas[fingerprint_of(schema)] = replace(_writer_schema(name, schema), fast=FAST_READERS[name])

    def __len__(self) -> int:
        return len(self._schemas)

    def knows(self, fingerprint: bytes) -> bool:
        return fingerprint in self._schemas

    def writer(self, fingerprint: bytes) -> WriterSchema | None:
        """The writer's schema with this fingerprint, or None."""
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
    name: fastavro.parse_schema(avro.schema.parse(text).to_json()) for name, text in OWN_TEXTS.items()
}
"""Our own schemas as fastavro has them, by name."""


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
        raise WireError(reasons.UNKNOWN_SCHEMA, f"a schema named {name!r:.80} is none of {', '.join(OWN_FINGERPRINTS)}")
    verdict = ReaderWriterCompatibilityChecker().get_compatibility(reader=OWN_PARSED[name], writer=schema)
    if verdict.compatibility is not SchemaCompatibilityType.compatible:
        why = "; ".join(sorted(verdict.messages))[:200]
        raise WireError(reasons.UNKNOWN_SCHEMA, f"a writer's {name} that ours cannot read: {why}")
    return str(name)
