"""Recordings: what came into a pipeline and what left it, in Avro container files that survive a crash.

A recording is a directory of files `recording-00001.avro`, ... of one schema (`recorded.avsc`). The metadata of each
file says which pipeline was recorded (its spec's text, fronts, workers, policies and their period) and since when, so
any one of them can be understood alone. A block is written at least every second and ends in a sync marker: a recorder
that is killed, or whose disk fills up, leaves all its blocks readable, and the torn end of the last file is passed
over.
"""

from __future__ import annotations

import io
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import fastavro
from fastavro.write import Writer

from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


# How much of an Avro container file is whole: its header, and its blocks up to the last sync marker.
#
# Avro readers fail somewhere in a torn last block, some of them after handing out half-read records. Here the lengths
# alone are walked first, so that a reader can be given exactly the part that is complete.

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_LONGEST_VARINT = 10


@dataclass(slots=True)
class Container:
    """A container file: its metadata, and where its last complete block ends."""

    path: Path
    metadata: dict[str, str] = field(default_factory=dict)
    complete_header: bool = False
    end: int = 0
    torn: int = 0  # bytes after `end`


class _TornError(Exception):
    """The file ends inside of what was being read."""


def examine(path: Path) -> Container:
    """Walk through the blocks of `path`. A file cut off anywhere is fine; `UsageError` if it is damaged otherwise."""
    found = Container(path)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            _walk(file, size, found)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is damaged: its metadata is not text") from error
    found.torn = size - found.end
    return found


def _walk(file: IO[bytes], size: int, found: Container) -> None:
    try:
        sync = _header(file, size, found)
        found.complete_header = True
        found.end = file.tell()
        while found.end < size:
            _block(file, size, sync, found)
            found.end = file.tell()
    except _TornError:
        return


def _header(file: IO[bytes], size: int, found: Container) -> bytes:
    magic = file.read(len(_MAGIC))
    if not _MAGIC.startswith(magic):
        raise UsageError(f"{found.path} is not an Avro container file")
    if magic != _MAGIC:
        raise _TornError
    while count := _long(file):
        if count < 0:  # a block of the map that also tells its length in bytes
            _long(file)
        for _ in range(abs(count)):
            key = _bytes(file, size, found).decode()
            found.metadata[key] = _bytes(file, size, found).decode()
    return _exactly(file, _SYNC_BYTES)


def _block(file: IO[bytes], size: int, sync: bytes, found: Container) -> None:
    count, length = _long(file), _long(file)
    if count < 0 or length < 0:
        raise UsageError(f"{found.path} is damaged at byte {found.end}: a block of {count} records, {length} bytes")
    if file.tell() + length + _SYNC_BYTES > size:
        raise _TornError
    file.seek(length, os.SEEK_CUR)
    if _exactly(file, _SYNC_BYTES) != sync:
        raise UsageError(f"{found.path} is damaged in the block at byte {found.end}: it does not end in a sync marker")


def _bytes(file: IO[bytes], size: int, found: Container) -> bytes:
    length = _long(file)
    if length < 0:
        raise UsageError(f"{found.path} is damaged: an entry of {length} bytes in its metadata")
    if file.tell() + length > size:
        raise _TornError
    return _exactly(file, length)


def _exactly(file: IO[bytes], length: int) -> bytes:
    data = file.read(length)
    if len(data) < length:
        raise _TornError
    return data


def _long(file: IO[bytes]) -> int:
    value = 0
    for place in range(_LONGEST_VARINT):
        byte = _exactly(file, 1)[0]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:  # noqa: PLR2004 (the continuation bit)
            break
    return (value >> 1) ^ -(value & 1)


BLOCK_SECONDS = 1.0
BLOCK_BYTES = 1 << 20
_PATTERN = "recording-*.avro"
_SCHEMA = fastavro.parse_schema(json.loads((Path(__file__).parent / "recorded.avsc").read_text(encoding="utf-8")))


@dataclass(slots=True, frozen=True)
class Recorded:
    """One message of a recording. `timestamp` in unix seconds, as the topic stamps it (ingress: append time)."""

    topic: str
    partition: int
    offset: int
    timestamp: float
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    value: bytes | None


@dataclass(slots=True, frozen=True)
class About:
    """What a recording says of itself."""

    pipeline: str  # the name
    spec: str  # the text of the spec file
    ingress: str  # topics
    egress: str
    fronts: dict[str, int] = field(default_factory=dict)  # of each stage
    policies: dict[str, str] = field(default_factory=dict)  # of each stage
    started: float = 0.0  # unix seconds
    period: float | None = None  # seconds between two synchronisations of the policies; None: not known
    workers: dict[str, int] = field(default_factory=dict)  # of stages, as they were ordered when it began


class RecordingWriter:
    """Writes a recording into a new or empty directory; a context manager. Not for several threads."""

    def __init__(self, directory: Path, about: About, *, rotate_bytes: int = 256 << 20) -> None:
        self._directory = directory
        self._about = about
        self._rotate_bytes = rotate_bytes
        self._part = 0
        self._file: IO[bytes] | None = None
        self._writer: Writer | None = None
        self._flushed = time.monotonic()
        self.counts: dict[str, int] = {}  # messages written, by topic
        _make_directory(directory)
        self._open_next()

    def write(self, message: Recorded) -> None:
        """Add one message; it is safe from a crash after the next `flush`, at most a second of `tick`s later."""
        assert self._writer is not None, "the recording is closed"
        self._writer.write(
            {
                "topic": message.topic,
                "partition": message.partition,
                "offset": message.offset,
                "timestamp": round(message.timestamp * 1000),
                "key": message.key,
                "headers": [{"key": key, "value": value} for key, value in message.headers],
                "value": message.value,
            }
        )
        self.counts[message.topic] = self.counts.get(message.topic, 0) + 1

    @property
    def written(self) -> int:
        return sum(self.counts.values())

    def tick(self, now: float) -> None:
        """End the block when a second has passed, and the file when it is large enough. `now`: monotonic."""
        if now - self._flushed < BLOCK_SECONDS:
            return
        self._flushed = now
        self.flush()
        if self._file is not None and self._file.tell() >= self._rotate_bytes:
            self._open_next()

    def flush(self) -> None:
        """End the block: everything written so far is in the file."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._file is not None:
            self.flush()
            self._file.close()
            self._file = self._writer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _open_next(self) -> None:
        self.close()
        self._part += 1
        path = self._directory / f"recording-{self._part:05d}.avro"
        try:
            self._file = path.open("xb")
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from error
        self._writer = Writer(self._file, _SCHEMA, "null", BLOCK_BYTES, _metadata(self._about, self._part))
        self._writer.flush()  # a file without its header is unreadable


class Recording:
    """A recording on disk, opened by `read_recording`. Files are read when asked for, one at a time."""

    def __init__(self, directory: Path, about: About, files: list[Container]) -> None:
        self.directory = directory
        self.about = about
        self._files = files

    @property
    def torn_bytes(self) -> int:
        """How many bytes at the end of the last file a crash left incomplete; they are not read."""
        return sum(container.torn for container in self._files)

    def messages(self) -> Iterator[Recorded]:
        """Every complete message, in the order of recording (in order of offsets within a partition)."""
        for container in self._files:
            yield from _messages(container)

    def queries(self) -> list[Recorded]:
        """What arrived at the ingress, in order of arrival."""
        return sorted((m for m in self.messages() if m.topic == self.about.ingress), key=_arrival)

    def outcomes(self) -> list[Recorded]:
        """What left by the egress, in order of leaving. Queries before the start may have theirs in here."""
        return sorted((m for m in self.messages() if m.topic == self.about.egress), key=_arrival)


def is_recording(path: Path) -> bool:
    """Whether `path` is a directory that holds a recording, so that it can be told from a trace file."""
    return path.is_dir() and any(path.glob(_PATTERN))


def read_recording(directory: Path) -> Recording:
    """Open a recording. `UsageError` names the file that is missing, foreign or damaged.

    An incomplete end is accepted of the last file alone, as that is what a killed recorder leaves.
    """
    paths = sorted(directory.glob(_PATTERN)) if directory.is_dir() else []
    if not paths:
        raise UsageError(f"{directory} holds no recording: no file is named {_PATTERN}")
    files = [examine(path) for path in paths]
    for number, container in enumerate(files, start=1):
        if container.path.name != f"recording-{number:05d}.avro":
            raise UsageError(f"{directory} lacks recording-{number:05d}.avro: the recording is incomplete")
        if container.torn and container is not files[-1]:
            raise UsageError(f"{container.path} ends in the middle of a block, but is not the last file: it was cut")
    while len(files) > 1 and not files[-1].complete_header:
        files.pop()  # killed while it began a new file
    if not files[0].complete_header:
        raise UsageError(f"{files[0].path} ends within its header: nothing was recorded")
    return Recording(directory, _about(files[0]), files)


def _messages(container: Container) -> Iterator[Recorded]:
    with container.path.open("rb") as file:
        records = _records(io.BufferedReader(_Prefix(file, container.end)))
        while True:
            try:
                record = next(records, None)
            except Exception as error:  # on damaged bytes fastavro raises what it happens to run into
                raise UsageError(f"{container.path} is damaged: {error}") from error
            if record is None:
                return
            yield record


def _records(whole: IO[bytes]) -> Iterator[Recorded]:
    for record in fastavro.reader(whole, _SCHEMA):
        yield _recorded(record)


class _Prefix(io.RawIOBase):
    """The first `end` bytes of a file."""

    def __init__(self, file: IO[bytes], end: int) -> None:
        self._file = file
        self._left = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


def _recorded(record: dict[str, Any]) -> Recorded:
    headers = tuple((header["key"], header["value"]) for header in record["headers"])
    return Recorded(
        topic=record["topic"],
        partition=record["partition"],
        offset=record["offset"],
        timestamp=record["timestamp"] / 1000,
        key=record["key"],
        headers=headers,
        value=record["value"],
    )


def _arrival(message: Recorded) -> tuple[float, int, int]:
    return message.timestamp, message.partition, message.offset


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        used = any(directory.iterdir())
    except OSError as error:
        raise UsageError(f"cannot record into {directory}: {error.strerror}") from error
    if used:
        raise UsageError(f"cannot record into {directory}: it is not empty; name a new directory")


def _metadata(about: About, part: int) -> dict[str, str]:
    said = {
        "spillway.pipeline": about.pipeline,
        "spillway.spec": about.spec,
        "spillway.ingress": about.ingress,
        "spillway.egress": about.egress,
        "spillway.fronts": json.dumps(about.fronts),
        "spillway.policies": json.dumps(about.policies),
        "spillway.workers": json.dumps(about.workers),
        "spillway.started": repr(about.started),
        "spillway.part": str(part),
    }
    return said if about.period is None else said | {"spillway.period": repr(about.period)}


def _about(container: Container) -> About:
    said = container.metadata
    try:
        return About(
            pipeline=said["spillway.pipeline"],
            spec=said["spillway.spec"],
            ingress=said["spillway.ingress"],
            egress=said["spillway.egress"],
            fronts=json.loads(said["spillway.fronts"]),
            policies=json.loads(said["spillway.policies"]),
            started=float(said["spillway.started"]),
            period=float(said["spillway.period"]) if "spillway.period" in said else None,
            workers=json.loads(said.get("spillway.workers", "{}")),  # none in older recordings
        )
    except (KeyError, ValueError) as error:
        raise UsageError(f"{container.path} is an Avro file, but not a Spillway recording ({error})") from error
