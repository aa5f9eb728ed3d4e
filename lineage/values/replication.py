"""What a stateful shard writes of itself, as bytes and back: Avro single-object encoding, as messages have it.

Encoders raise WireError(NOT_ENCODABLE or TOO_LARGE) and nothing else. `ReplicationDecoder` raises WireError and nothing
else, whatever the bytes: they are scanned by their writer's schema before anything is allocated, whichever version of
it that is, so a hostile length ends there. Long lists travel by columns, which take no object per item to scan.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeVar

import fastavro

from lineage import reasons
from lineage.errors import WireError
from lineage.limits import Limits, too_large
from lineage.marks import Mark, Version
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
from lineage.values.contents import check_names, chunks_of, contents_of, corrupt, pack_chunks, pack_contents
from lineage.values.resolution import read_as
from lineage.values.structures import check_length

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from lineage.replication import Link


# Records of a stateful shard to what fastavro writes, and from what it reads.
#
# Builders take records that were read from bytes within the limits; they raise WireError for what no encoder makes.

Fields = dict[str, Any]
# The fields of a manifest that are on the wire as they are.
_PLAIN: Final = ("claimant", "at_us", "state_bytes", "written_bytes", "batches", "requests", "digest", "contents")
_UNCHECKED: Final = {"checksum": bytes(DIGEST_BYTES)}  # its room: `lineage.values.replication` fills it in
_INT_MOST: Final = (1 << 31) - 1
_LONG_MOST: Final = (1 << 63) - 1


def _pack_manifest(manifest: Manifest, limits: Limits) -> Fields:
    check_names(limits, manifest.claimant, *(mark.stage for mark in manifest.requires))
    counts = (manifest.state_bytes, manifest.written_bytes, manifest.batches, manifest.requests)
    _numbers(_LONG_MOST, manifest.version.epoch, manifest.version.n, *counts, reason=reasons.NOT_ENCODABLE)
    return {
        "epoch": manifest.version.epoch,
        "n": manifest.version.n,
        "chain": _pack_chain(manifest.chain, limits, beside=len(manifest.requires)),
        "requires": [
            {"stage": mark.stage, "shard": mark.shard, "epoch": mark.version.epoch, "n": mark.version.n}
            for mark in manifest.requires
        ],
        **{name: getattr(manifest, name) for name in _PLAIN},
        "spilled": pack_chunks(manifest.spilled),
        **_UNCHECKED,
    }


def _manifest(fields: Fields, limits: Limits) -> Manifest:
    check_names(limits, fields["claimant"])
    _numbers(_LONG_MOST, fields["state_bytes"], fields["written_bytes"], fields["batches"], fields["requests"])
    if len(fields["digest"]) not in {0, DIGEST_BYTES}:
        raise corrupt(f"a manifest has a digest of {len(fields['digest'])} bytes")
    return Manifest(
        _version(fields["epoch"], fields["n"]),
        _chain(fields["chain"]),
        tuple(_mark(mark, limits) for mark in fields["requires"]),
        spilled=chunks_of(fields["spilled"]),
        **{name: fields[name] for name in _PLAIN},
    )


def _pack_fence(fence: Fence, limits: Limits) -> Fields:
    return _plain(fence, limits, "epoch", "claimant", "at_us") | _UNCHECKED


def _fence(fields: Fields, limits: Limits) -> Fence:
    return Fence(**_judged(_unchecked(fields), limits))


def _pack_base(base: Base, limits: Limits) -> Fields:
    fields = _plain(base, limits, "epoch", "claimant")
    _numbers(_LONG_MOST, base.version.epoch, base.version.n, reason=reasons.NOT_ENCODABLE)
    return fields | {
        "base_epoch": base.version.epoch,
        "base_n": base.version.n,
        "chain": _pack_chain(base.chain, limits),
        **_UNCHECKED,
    }


def _base(fields: Fields, limits: Limits) -> Base:
    _judged(fields, limits)
    version = _version(fields["base_epoch"], fields["base_n"])
    return Base(fields["epoch"], fields["claimant"], version, _chain(fields["chain"]))


def _pack_claim(claim: Claim, limits: Limits) -> Fields:
    return _plain(claim, limits, "stage", "shard", "epoch", "claimant", "at_us", "reason") | _UNCHECKED


def _claim(fields: Fields, limits: Limits) -> Claim:
    return Claim(**_judged(_unchecked(fields), limits))


def _pack_beat(beat: Beat, limits: Limits) -> Fields:
    fields = _plain(beat, limits, "stage", "shard", "member", "epoch", "role", "sequence", "at_us")
    _numbers(_LONG_MOST, beat.version.epoch, beat.version.n, reason=reasons.NOT_ENCODABLE)
    return fields | {"version_epoch": beat.version.epoch, "version_n": beat.version.n}


def _beat(fields: Fields, limits: Limits) -> Beat:
    version = _version(fields.pop("version_epoch"), fields.pop("version_n"))
    return Beat(version=version, **_judged(fields, limits))


def _pack_report(report: Report, limits: Limits) -> Fields:
    check_names(limits, *report.members)
    return _plain(report, limits, "stage", "shard", "at_us", "reason") | {"members": list(report.members)}


def _report(fields: Fields, limits: Limits) -> Report:
    members = tuple(fields.pop("members"))
    check_names(limits, *members)
    return Report(members=members, **_judged(fields, limits))


def _pack_yield(wish: Yield, limits: Limits) -> Fields:
    return _plain(wish, limits, "stage", "shard", "epoch", "by", "at_us", "reason") | _UNCHECKED


def _yield(fields: Fields, limits: Limits) -> Yield:
    return Yield(**_judged(_unchecked(fields), limits))


def _unchecked(fields: Fields) -> Fields:
    del fields["checksum"]  # it was compared
    return fields


def _plain(record: Any, limits: Limits, *names: str) -> Fields:
    return _judged({name: getattr(record, name) for name in names}, limits, reasons.NOT_ENCODABLE)


def _judged(fields: Fields, limits: Limits, reason: str = reasons.CORRUPT) -> Fields:
    for name, value in fields.items():
        if isinstance(value, str):
            check_length("a name", value, limits.max_name_bytes)
        elif isinstance(value, int) and value < 0 and name != "at_us":
            raise WireError(reason, f"{name} is negative, {value}")
        elif isinstance(value, int) and name == "shard" and value > _INT_MOST:
            raise WireError(reason, f"{name} does not fit 32 bits, {value}")
    return fields


def _pack_chain(chain: Collection[Link], limits: Limits, beside: int = 0) -> list[Fields]:
    if len(chain) + beside > limits.max_values:  # as those count who decode it
        raise too_large(f"a record of {len(chain)} links and {beside} marks", limits.max_values)
    return [{"epoch": epoch, "base_epoch": base.epoch, "base_n": base.n} for epoch, base in chain]


def _chain(links: Iterable[Fields]) -> tuple[Link, ...]:
    chain = tuple((link["epoch"], _version(link["base_epoch"], link["base_n"])) for link in links)
    if any(epoch <= base.epoch for epoch, base in chain):
        raise corrupt("an epoch starts from a version that is not older")
    return chain


def _mark(fields: Fields, limits: Limits) -> Mark:
    check_names(limits, fields["stage"])
    _numbers(_INT_MOST, fields["shard"])
    return Mark(fields["stage"], fields["shard"], _version(fields["epoch"], fields["n"]))


def _version(epoch: int, n: int) -> Version:
    if epoch < 0 or n < 0:
        raise corrupt(f"a version has negative numbers: {epoch}, {n}")
    return Version(epoch, n)


def _numbers(most: int, *numbers: int, reason: str = reasons.CORRUPT) -> None:
    for number in numbers:
        if not 0 <= number <= most:
            raise WireError(reason, f"a number is negative or over {most}: {number}")


PACKERS: Final[Mapping[str, Callable[[Any, Limits], Fields]]] = {
    MANIFEST: _pack_manifest,
    CONTENTS: pack_contents,
    FENCE: _pack_fence,
    BASE: _pack_base,
    CLAIM: _pack_claim,
    BEAT: _pack_beat,
    REPORT: _pack_report,
    YIELD: _pack_yield,
}
BUILDERS: Final[Mapping[str, Callable[[Fields, Limits], Any]]] = {
    MANIFEST: _manifest,
    CONTENTS: contents_of,
    FENCE: _fence,
    BASE: _base,
    CLAIM: _claim,
    BEAT: _beat,
    REPORT: _report,
    YIELD: _yield,
}


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
