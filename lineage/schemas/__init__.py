"""Avro schemas: our own (the .avsc files here) and the writers' that a reader has learnt.

A schema changes by new fields with defaults only: readers of the version before skip them, and readers of the new one
fill them in. `spillway.lineage.values.decoding` reads the current version's fields in order, so it changes with the
schema; the version that was goes to the tests' recorded ones, which must stay readable. A new branch of a union, or a
new symbol of an enum, comes one release after the readers that know it: until then a book refuses its writers' schema.

What must take another form is a new type, and the type that was stays readable.
"""

from spillway.lineage.schemas.book import (
    BASE,
    BEAT,
    CHECKED,
    CLAIM,
    CONTENTS,
    DEAD_LETTER,
    FAST_READERS,
    FENCE,
    FINGERPRINT_BYTES,
    HEADER_BYTES,
    MANIFEST,
    MARKER,
    MAX_SCHEMA_BYTES,
    MAX_SCHEMAS,
    OUTCOME,
    OWN_FINGERPRINTS,
    OWN_PARSED,
    OWN_SCHEMAS,
    OWN_TEXTS,
    QUERY,
    REPLICATION,
    REPORT,
    WORD,
    YIELD,
    SchemaBook,
    WriterSchema,
    fingerprint_of,
)

__all__ = [
    "BASE",
    "BEAT",
    "CHECKED",
    "CLAIM",
    "CONTENTS",
    "DEAD_LETTER",
    "FAST_READERS",
    "FENCE",
    "FINGERPRINT_BYTES",
    "HEADER_BYTES",
    "MANIFEST",
    "MARKER",
    "MAX_SCHEMAS",
    "MAX_SCHEMA_BYTES",
    "OUTCOME",
    "OWN_FINGERPRINTS",
    "OWN_PARSED",
    "OWN_SCHEMAS",
    "OWN_TEXTS",
    "QUERY",
    "REPLICATION",
    "REPORT",
    "WORD",
    "YIELD",
    "SchemaBook",
    "WriterSchema",
    "fingerprint_of",
]
