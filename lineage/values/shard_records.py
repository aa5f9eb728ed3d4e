"""Records of a stateful shard to what fastavro writes, and from what it reads.

Builders take records that were read from bytes within the limits; they raise WireError for what no encoder makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lineage import reasons
from lineage.errors import WireError
from lineage.limits import too_large
from lineage.marks import Mark, Version
from lineage.replication import DIGEST_BYTES, Base, Beat, Claim, Fence, Manifest, Report, Yield
from lineage.schemas import BASE, BEAT, CLAIM, CONTENTS, FENCE, MANIFEST, REPORT, YIELD
from lineage.values.contents import check_names, chunks_of, contents_of, corrupt, pack_chunks, pack_contents
from lineage.values.structures import check_length

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from lineage.limits import Limits
    from lineage.replication import Link

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
