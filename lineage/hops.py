"""Hops: which stage sent a message, for which of its inputs, what it can no longer repeat, and what states it rests on.

On the wire (the header `spillway-hops`): a version byte, a count, and for each hop its stage's name (length, UTF-8)
and four numbers; lengths and numbers are unsigned varints of at most 63 bits. Lists hold one hop today, the emitter's.

Version 2, used only where a hop has marks: behind each hop a count of marks, in their order, and for each mark its
stage's name (length 0: the hop's stage), shard, epoch and n. So a pipeline without stateful stages writes and reads
version 1 as ever. A header has at most `MAX_MARKS` marks: what they add to it is bounded, and `growth` tells it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.marks import Mark, Version, order

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION: Final = 1
VERSION_WITH_MARKS: Final = 2
MAX_HOPS: Final = 64
MAX_MARKS: Final = 64
MAX_STAGE_BYTES: Final = 249  # the longest name of a Kafka topic
_MOST: Final = (1 << 63) - 1
_MAX_BITS: Final = 63  # of a varint
_MORE: Final = 0x80
_CACHED: Final = 1_024  # names; what is least used goes, so a hostile writer's names do not keep ours out

# What was written and read last: the messages of a batch rest on the same versions. Replaced whole, so for any thread.
_written: tuple[tuple[Mark, ...], str, bytes] = ((), "", b"\0")
_read: tuple[bytes, str, tuple[Mark, ...]] = (b"\0", "", ())


@dataclass(slots=True, frozen=True)
class Hop:
    """One stage's mark on a message it produced.

    `sequence` is the offset, in partition `partition` of the stage's input, of the message that this one answers (the
    first one to arrive, where several were joined: it is the same whatever came after it, also when a join runs out of
    time). `committed` is the input offset that the stage had committed on that partition when it produced: it cannot
    repeat any sequence below it. `marks` are the versions that the message rests on.
    """

    stage: str
    epoch: int
    partition: int
    sequence: int
    committed: int
    marks: tuple[Mark, ...] = ()


def encode(hops: Sequence[Hop]) -> bytes:
    """The header's bytes.

    Raises WireError for more than `MAX_HOPS` or `MAX_MARKS`, a number that is negative or over 63 bits, a name that is
    too long, or marks out of order.
    """
    if len(hops) > MAX_HOPS:
        raise WireError(reasons.NOT_ENCODABLE, f"{len(hops)} hops are over the limit of {MAX_HOPS}")
    count = 0
    for hop in hops:
        count += len(hop.marks)
    if count > MAX_MARKS:
        raise WireError(reasons.NOT_ENCODABLE, f"{count} marks are over the limit of {MAX_MARKS}")
    out = bytearray((VERSION_WITH_MARKS if count else VERSION, len(hops)))
    for hop in hops:
        out += _prefix(hop.stage)
        for number in (hop.epoch, hop.partition, hop.sequence, hop.committed):
            if not 0 <= number <= _MOST:
                raise WireError(reasons.NOT_ENCODABLE, f"{hop} has a number that is negative or over 63 bits")
            rest = number
            while rest >= _MORE:
                out.append(rest & 0x7F | _MORE)
                rest >>= 7
            out.append(rest)
        if count:
            out += _marks_of(hop)
    return bytes(out)


def growth(hops: Sequence[Hop]) -> int:
    """How many bytes the marks add to the header."""
    if not any(hop.marks for hop in hops):
        return 0
    bare = [Hop(hop.stage, hop.epoch, hop.partition, hop.sequence, hop.committed) for hop in hops]
    return len(encode(hops)) - len(encode(bare))


def decode(data: bytes) -> tuple[Hop, ...]:
    """The hops in the header's bytes. Raises WireError(BAD_HEADERS) for anything that `encode` could not have made."""
    try:
        version, count = data[0], data[1]
        if version not in (VERSION, VERSION_WITH_MARKS):
            raise _bad(f"their version is {version}, not {VERSION} or {VERSION_WITH_MARKS}")
        if count > MAX_HOPS:
            raise _bad(f"{count} are over the limit of {MAX_HOPS}")
        hops, at, room = [], 2, MAX_MARKS
        for _ in range(count):
            hop, at = _hop(data, at, room if version == VERSION_WITH_MARKS else None)
            room -= len(hop.marks)
            hops.append(hop)
    except IndexError as error:
        raise _bad("they end early") from error
    if at != len(data):
        raise _bad(f"{len(data) - at} bytes follow them")
    if version == VERSION_WITH_MARKS and room == MAX_MARKS:
        raise _bad(f"they have no marks, so their version must be {VERSION}")
    return tuple(hops)


def _marks_of(hop: Hop) -> bytes:
    global _written  # noqa: PLW0603
    marks, stage, encoded = _written
    if marks is not hop.marks or stage != hop.stage:
        encoded = _encoded_marks(hop)
        _written = hop.marks, hop.stage, encoded
    return encoded


def _encoded_marks(hop: Hop) -> bytes:
    marks = hop.marks
    out = bytearray((len(marks),))
    before: tuple[str, int, int] | None = None
    for mark in marks:
        place = order(mark)
        if before is not None and before >= place:
            raise WireError(reasons.NOT_ENCODABLE, f"the marks of {hop} are not in order")
        before = place
        version = mark.version
        if not (0 <= mark.shard <= _MOST and 0 < version.epoch <= _MOST and 0 < version.n <= _MOST):
            raise WireError(reasons.NOT_ENCODABLE, f"the mark {mark} has a number that is not positive or over 63 bits")
        if mark.stage == hop.stage:
            out.append(0)
        else:
            out += _prefix(mark.stage)
        for number in (mark.shard, version.epoch, version.n):
            rest = number
            while rest >= _MORE:
                out.append(rest & 0x7F | _MORE)
                rest >>= 7
            out.append(rest)
    return bytes(out)


def _read_marks(data: bytes, at: int, sender: str, room: int) -> tuple[tuple[Mark, ...], int]:
    """The marks at `at`, and where they end. Bytes that begin as those read last are those: they say their length."""
    global _read  # noqa: PLW0603
    encoded, stage, marks = _read
    if stage == sender and len(marks) <= room and data.startswith(encoded, at):
        return marks, at + len(encoded)
    marks, end = _marks(data, at, sender, room)
    _read = data[at:end], sender, marks
    return marks, end


def _marks(data: bytes, at: int, sender: str, room: int) -> tuple[tuple[Mark, ...], int]:
    count = data[at]
    if count > room:
        raise _bad(f"their marks are over the limit of {MAX_MARKS}")
    at += 1
    marks: list[Mark] = []
    for _ in range(count):
        (size,), at = _numbers(data, at, 1)
        if size > MAX_STAGE_BYTES:
            raise _bad(f"a stage's name has {size} bytes")
        name = data[at : at + size]
        stage = _name(name) if size else sender
        (shard, epoch, n), at = _numbers(data, at + size, 3)
        if not (epoch and n):
            raise _bad("a mark names no version")
        mark = Mark(stage, shard, Version(epoch, n))
        if marks and order(marks[-1]) >= order(mark):
            raise _bad("their marks are not in order")
        marks.append(mark)
    return tuple(marks), at


def _hop(data: bytes, at: int, room: int | None) -> tuple[Hop, int]:
    """One hop, with its marks: at most `room` of them; None in a version without."""
    (size,), at = _numbers(data, at, 1)
    if size > MAX_STAGE_BYTES:
        raise _bad(f"a stage's name has {size} bytes")
    name = data[at : at + size]
    stage = _name(name)
    (epoch, partition, sequence, committed), at = _numbers(data, at + size, 4)
    marks: tuple[Mark, ...] = ()
    if room is not None:
        marks, at = _read_marks(data, at, stage, room)
    return Hop(stage, epoch, partition, sequence, committed, marks), at


def _numbers(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    numbers = []
    for _ in range(count):
        value, shift, byte = 0, 0, _MORE
        while byte >= _MORE:
            if shift == _MAX_BITS:
                raise _bad("a number is over 63 bits")
            byte = data[at]
            value |= (byte & 0x7F) << shift
            at += 1
            shift += 7
        numbers.append(value)
    return numbers, at


@lru_cache(_CACHED)
def _prefix(stage: str) -> bytes:
    try:
        name = stage.encode()
    except UnicodeEncodeError as error:
        raise WireError(reasons.NOT_ENCODABLE, f"the stage name {stage!r} is not UTF-8") from error
    if not 0 < len(name) <= MAX_STAGE_BYTES:
        raise WireError(reasons.NOT_ENCODABLE, f"a stage's name must have 1 to {MAX_STAGE_BYTES} bytes: {stage!r}")
    size = len(name)
    return (bytes((size,)) if size < _MORE else bytes((size & 0x7F | _MORE, size >> 7))) + name


@lru_cache(_CACHED)
def _name(name: bytes) -> str:
    if not name:
        raise _bad("a stage's name is empty")
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise _bad("a stage's name is not UTF-8") from error


def _bad(what: str) -> WireError:
    return WireError(reasons.BAD_HEADERS, f"the header spillway-hops cannot be read: {what}")
