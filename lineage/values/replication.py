"""What a stateful shard writes of itself, as bytes and back: Avro single-object encoding, as messages have it.

Encoders raise WireError(NOT_ENCODABLE or TOO_LARGE) and nothing else. `ReplicationDecoder` raises WireError and nothing
else, whatever the bytes: they are scanned by their writer's schema before anything is allocated, whichever version of
it that is, so a hostile length ends there. Long lists travel by columns, which take no object per item to scan.
"""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeVar

import fastavro

from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.limits import Limits, too_large
from spillway.lineage.marks import Mark, Version
from spillway.lineage.replication import DIGEST_BYTES, Base, Beat, Claim, Contents, Fence, Manifest, Report, Yield
from spillway.lineage.schemas import (
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
from spillway.lineage.values.contents import check_names, chunks_of, contents_of, corrupt, pack_chunks, pack_contents
from spillway.lineage.values.resolution import read_as
from spillway.lineage.values.structures import check_length

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from spillway.lineage.replication import Link


# Records of a stateful shard to what fastavro writes, and from what it reads: a record's fields stand on the wire under
# their own names, but for a version, which is two numbers, and for what `_PACKED` lists.
#
# Builders take records that were read from bytes within the limits; they raise WireError for what no encoder makes.

Fields = dict[str, Any]
_INT_MOST: Final = (1 << 31) - 1
_LONG_MOST: Final = (1 << 63) - 1
_VERSIONS: Final[Mapping[type, tuple[str, str]]] = {
    Manifest: ("epoch", "n"),
    Base: ("base_epoch", "base_n"),
    Beat: ("version_epoch", "version_n"),
}


def _pack(record: Any, limits: Limits) -> Fields:
    packed: Fields = {}
    for name in record.__slots__:
        value = getattr(record, name)
        if name == "version":
            packed.update(zip(_VERSIONS[type(record)], (value.epoch, value.n), strict=True))
        else:
            packed[name] = _PACKED[name](value, limits) if name in _PACKED else value
    if isinstance(record, Manifest):
        _check_links(len(record.chain), len(record.requires), limits)
    return _judged(packed, limits, reasons.NOT_ENCODABLE)


def _build(kind: type, fields: Fields, limits: Limits) -> Any:
    values: Fields = {}
    for name in kind.__slots__:  # type: ignore[attr-defined]
        if name == "version":
            values[name] = _version(*(fields[number] for number in _VERSIONS[kind]))
        else:
            values[name] = _BUILT[name](fields[name], limits) if name in _BUILT else fields[name]
    _judged(values, limits)
    if len(values.get("digest", b"")) not in {0, DIGEST_BYTES}:
        raise corrupt(f"a manifest has a digest of {len(values['digest'])} bytes")
    return kind(**values)


def _judged(fields: Fields, limits: Limits, reason: str = reasons.CORRUPT) -> Fields:
    for name, value in fields.items():
        if isinstance(value, str):
            check_length("a name", value, limits.max_name_bytes)
        elif isinstance(value, int) and name != "at_us":
            most = _INT_MOST if name == "shard" else _LONG_MOST
            if not 0 <= value <= most:
                raise WireError(reason, f"{name} is negative or over {most}: {value}")
    return fields


def _check_links(links: int, marks: int, limits: Limits) -> None:
    if links + marks > limits.max_values:  # as those count who decode it
        raise too_large(f"a record of {links} links and {marks} marks", limits.max_values)


def _pack_chain(chain: Collection[Link], limits: Limits) -> list[Fields]:
    _check_links(len(chain), 0, limits)
    return [{"epoch": epoch, "base_epoch": base.epoch, "base_n": base.n} for epoch, base in chain]


def _chain(links: Iterable[Fields], _limits: Limits) -> tuple[Link, ...]:
    chain = tuple((link["epoch"], _version(link["base_epoch"], link["base_n"])) for link in links)
    if any(epoch <= base.epoch for epoch, base in chain):
        raise corrupt("an epoch starts from a version that is not older")
    return chain


def _pack_marks(marks: Iterable[Mark], limits: Limits) -> list[Fields]:
    packed = []
    for one in marks:
        check_names(limits, one.stage)
        packed.append({"stage": one.stage, "shard": one.shard, "epoch": one.version.epoch, "n": one.version.n})
    return packed


def _marks(marks: Iterable[Fields], limits: Limits) -> tuple[Mark, ...]:
    built = []
    for one in marks:
        place = _judged({"stage": one["stage"], "shard": one["shard"]}, limits)
        built.append(Mark(**place, version=_version(one["epoch"], one["n"])))
    return tuple(built)


def _members(members: Iterable[str], limits: Limits) -> tuple[str, ...]:
    names = tuple(members)
    check_names(limits, *names)
    return names


def _version(epoch: int, n: int) -> Version:
    if epoch < 0 or n < 0:
        raise corrupt(f"a version has negative numbers: {epoch}, {n}")
    return Version(epoch, n)


_PACKED: Final[Mapping[str, Callable[[Any, Limits], Any]]] = {
    "chain": _pack_chain,
    "requires": _pack_marks,
    "members": lambda members, limits: list(_members(members, limits)),
    "spilled": lambda chunks, _limits: pack_chunks(chunks),
}
_BUILT: Final[Mapping[str, Callable[[Any, Limits], Any]]] = {
    "chain": _chain,
    "requires": _marks,
    "members": _members,
    "spilled": lambda table, _limits: chunks_of(table),
}


ShardRecord = Manifest | Contents | Fence | Base | Claim | Beat | Report | Yield
_Kind = TypeVar("_Kind", Manifest, Contents, Beat)

CONTENTS_LIMITS: Final = Limits(
    max_message_bytes=256 << 20, max_values=1 << 20, max_entries=65_536, max_string_bytes=8 << 20, max_name_bytes=1_024
)
"""Of the contents of a version, which may be spilled over many chunks."""
SHARD_LIMITS: Final = Limits(max_values=65_536, max_string_bytes=8 << 20, max_name_bytes=1_024)
"""Of what stands in a version log or beside it, in one record."""

_KINDS: Final[Mapping[str, type]] = {
    MANIFEST: Manifest,
    CONTENTS: Contents,
    FENCE: Fence,
    BASE: Base,
    CLAIM: Claim,
    BEAT: Beat,
    REPORT: Report,
    YIELD: Yield,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_HEADERS: Final = {name: MARKER + OWN_FINGERPRINTS[name] for name in REPLICATION}


def encode(record: ShardRecord) -> bytes:
    """A record of a shard as a record's value, or, of contents, as what is put into a manifest or spilled."""
    limits = CONTENTS_LIMITS if isinstance(record, Contents) else SHARD_LIMITS
    name = _NAMES[type(record)]
    pieces = _Pieces((_HEADERS[name],))
    try:
        packed = pack_contents(record, limits) if isinstance(record, Contents) else _pack(record, limits)
        if name in CHECKED:
            packed["checksum"] = bytes(DIGEST_BYTES)  # its room: `sealed` fills it in
        fastavro.schemaless_writer(pieces, FAST_READERS[name], packed)
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

    def __init__(self, book: SchemaBook | None = None) -> None:
        self._book = SchemaBook() if book is None else book

    def record(self, message: bytes) -> Manifest | Fence | Base | Claim | Beat | Report | Yield:
        decoded = self._decode(message, SHARD_LIMITS)
        if isinstance(decoded, Contents):
            raise WireError(reasons.UNKNOWN_SCHEMA, "the contents of a version are not a record of their own")
        return decoded

    def contents(self, message: bytes) -> Contents:
        return self._of(Contents, self._decode(message, CONTENTS_LIMITS))

    def manifest(self, message: bytes) -> Manifest:
        return self._of(Manifest, self._decode(message, SHARD_LIMITS))

    def beat(self, message: bytes) -> Beat:
        return self._of(Beat, self._decode(message, SHARD_LIMITS))

    @staticmethod
    def _of(kind: type[_Kind], decoded: ShardRecord) -> _Kind:
        if not isinstance(decoded, kind):
            raise WireError(reasons.UNKNOWN_SCHEMA, f"the record is a {type(decoded).__name__}, not a {kind.__name__}")
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
                f"the checksum of a {schema.name} does not match its bytes: it is damaged, or was written without one"
            )
            raise WireError(reasons.CORRUPT, text)
        kind = _KINDS.get(schema.name)
        if kind is None:
            raise WireError(reasons.UNKNOWN_SCHEMA, f"a {schema.name} is not a record of a stateful shard")
        build = contents_of if kind is Contents else partial(_build, kind)
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
