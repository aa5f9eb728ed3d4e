"""What a stateful shard writes of itself, as bytes and back: Avro single-object encoding, as messages have it.

Encoders raise WireError(NOT_ENCODABLE or TOO_LARGE) and nothing else. `ReplicationDecoder` raises WireError and nothing
else, whatever the bytes: they are scanned by their writer's schema before anything is allocated, whichever version of
it that is, so a hostile length ends there. Long lists travel by columns, which take no object per item to scan.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeVar

import fastavro

from lineage import reasons
from lineage.errors import WireError
from lineage.limits import Limits, too_large
from lineage.replication import DIGEST_BYTES, Base, Beat, Claim, Contents, Fence, Manifest, Report, Yield
from lineage.schemas import (
    BASE,
    BEAT,
    CHECKED,
    CLAIM,
    CONTENTS,
    FAST_READERS,
    FENCE,
    FINGERPRINT_BYTES,
    HEADER_BYTES,
    MANIFEST,
    MARKER,
    OWN_FINGERPRINTS,
    REPLICATION,
    REPORT,
    YIELD,
    SchemaBook,
)
from lineage.values.resolution import read_as
from lineage.values.shard_records import BUILDERS, PACKERS

if TYPE_CHECKING:
    from collections.abc import Mapping

ShardRecord = Manifest | Contents | Fence | Base | Claim | Beat | Report | Yield
_Kind = TypeVar("_Kind", Manifest, Contents, Fence, Base, Claim, Beat)

CONTENTS_LIMITS: Final = Limits(
    max_message_bytes=256 << 20, max_values=1 << 20, max_entries=65_536, max_string_bytes=8 << 20, max_name_bytes=1_024
)
"""Of the contents of a version, which may be spilled over many chunks."""
SHARD_LIMITS: Final = Limits(max_values=65_536, max_string_bytes=8 << 20, max_name_bytes=1_024)
"""Of what stands in a version log or beside it, in one record."""

_NAMES: Final[Mapping[type, str]] = {
    Manifest: MANIFEST,
    Contents: CONTENTS,
    Fence: FENCE,
    Base: BASE,
    Claim: CLAIM,
    Beat: BEAT,
    Report: REPORT,
    Yield: YIELD,
}
_HEADERS: Final = {name: MARKER + OWN_FINGERPRINTS[name] for name in REPLICATION}


def encode(record: ShardRecord) -> bytes:
    """A record of a shard as a record's value, or, of contents, as what is put into a manifest or spilled."""
    limits = CONTENTS_LIMITS if isinstance(record, Contents) else SHARD_LIMITS
    name = _NAMES[type(record)]
    pieces = _Pieces((_HEADERS[name],))
    try:
        fastavro.schemaless_writer(pieces, FAST_READERS[name], PACKERS[name](record, limits))
    except (TypeError, ValueError, OverflowError, AttributeError, KeyError) as error:
        raise WireError(reasons.NOT_ENCODABLE, f"not a {name}: {str(error)[:200]}") from error
    message = b"".join(pieces)
    if name in CHECKED:
        message = sealed(message)
    if len(message) > limits.max_message_bytes:
        raise too_large(f"a {name} of {len(message)} bytes", limits.max_message_bytes, "max_message_bytes")
    return message


class ReplicationDecoder:
    """Decodes what `encode` has made, with our schemas or with those in `book`.

    Every method raises WireError only: NOT_AVRO without the single-object header, UNKNOWN_SCHEMA for a fingerprint that
    the book lacks or a record of another type, TOO_LARGE over a limit, CORRUPT for the rest.
    """

    __slots__ = ("_book",)

    def __init__(self, book: SchemaBook | None = None) -> None:
        self._book = SchemaBook() if book is None else book

    def record(self, message: bytes) -> Manifest | Fence | Base | Claim | Beat | Report | Yield:
        decoded = self._decode(message, SHARD_LIMITS)
        if isinstance(decoded, Contents):
            raise WireError(reasons.UNKNOWN_SCHEMA, "the contents of a version are no record of their own")
        return decoded

    def contents(self, message: bytes) -> Contents:
        return self._of(Contents, self._decode(message, CONTENTS_LIMITS))

    def manifest(self, message: bytes) -> Manifest:
        return self._of(Manifest, self._decode(message, SHARD_LIMITS))

    def claim(self, message: bytes) -> Claim:
        return self._of(Claim, self._decode(message, SHARD_LIMITS))

    def beat(self, message: bytes) -> Beat:
        return self._of(Beat, self._decode(message, SHARD_LIMITS))

    @staticmethod
    def _of(kind: type[_Kind], decoded: ShardRecord) -> _Kind:
        if not isinstance(decoded, kind):
            raise WireError(reasons.UNKNOWN_SCHEMA, f"the record is a {type(decoded).__name__}, no {kind.__name__}")
        return decoded

    def _decode(self, message: bytes, limits: Limits) -> ShardRecord:
        if type(message) is not bytes:
            raise WireError(reasons.NOT_AVRO, f"a record's value must be bytes, not {type(message).__name__}")
        if len(message) > limits.max_message_bytes:
            raise too_large(f"a record of {len(message)} bytes", limits.max_message_bytes, "max_message_bytes")
        header = message[:HEADER_BYTES]
        if len(header) < HEADER_BYTES or not header.startswith(MARKER):
            raise WireError(reasons.NOT_AVRO, "the value does not start as Avro single-object encoding does")
        schema = self._book.writer(header[len(MARKER) :])
        if schema is None:
            fingerprint = header[-FINGERPRINT_BYTES:].hex()
            raise WireError(reasons.UNKNOWN_SCHEMA, f"no schema with the fingerprint {fingerprint} is known")
        if schema.name in CHECKED and _checksum(message) != message[-DIGEST_BYTES:]:
            text = (
                f"the checksum of a {schema.name} is not that of its bytes: it is damaged, or was written without one"
            )
            raise WireError(reasons.CORRUPT, text)
        build = BUILDERS.get(schema.name)
        if build is None:
            raise WireError(reasons.UNKNOWN_SCHEMA, f"a {schema.name} is no record of a stateful shard")
        decoded: ShardRecord = read_as(schema, message, HEADER_BYTES, limits, build)
        return decoded


def sealed(message: bytes) -> bytes:
    """The record with the checksum of its other bytes at its end, in the place that it has there."""
    return message[:-DIGEST_BYTES] + _checksum(message)


def _checksum(message: bytes) -> bytes:
    return blake2b(memoryview(message)[:-DIGEST_BYTES], digest_size=DIGEST_BYTES).digest()


class _Pieces(list[bytes]):
    """What fastavro writes to."""

    write = list.append
