"""Avro schemas: our own (the .avsc files here) and the writers' that a reader has learnt."""

from lineage.schemas.book import FAST_READERS, MAX_SCHEMA_BYTES, MAX_SCHEMAS, SchemaBook, WriterSchema
from lineage.schemas.own import (
    DEAD_LETTER,
    FINGERPRINT_BYTES,
    HEADER_BYTES,
    MARKER,
    OUTCOME,
    OWN_FINGERPRINTS,
    OWN_PARSED,
    OWN_SCHEMAS,
    OWN_TEXTS,
    QUERY,
    fingerprint_of,
)

__all__ = [
    "DEAD_LETTER",
    "FAST_READERS",
    "FINGERPRINT_BYTES",
    "HEADER_BYTES",
    "MARKER",
    "MAX_SCHEMAS",
    "MAX_SCHEMA_BYTES",
    "OUTCOME",
    "OWN_FINGERPRINTS",
    "OWN_PARSED",
    "OWN_SCHEMAS",
    "OWN_TEXTS",
    "QUERY",
    "SchemaBook",
    "WriterSchema",
    "fingerprint_of",
]
