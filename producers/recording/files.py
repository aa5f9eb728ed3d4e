"""Recordings: what came into a pipeline and what left it, in Avro container files that survive a crash.

A recording is a directory of files `recording-00001.avro`, ... of one schema (`recorded.avsc`). The metadata of each
file says which pipeline was recorded (its spec's text, fronts, workers, policies and their period) and since when, so
any one of them can be understood alone. A block is written at least every second and ends in a sync marker: a recorder
that is killed, or whose disk fills up, leaves all its blocks readable, and the torn end of the last file is passed
over.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import fastavro
from fastavro.write import Writer

from spillway.lineage.errors import UsageError
from spillway.producers.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


BLOCK_SECONDS = 1.0
BLOCK_BYTES = 1 << 20
_MAGIC = b"Obj\x01"
_PATTERN = "recording-*.avro"
_TEXTS = ("pipeline", "spec", "ingress", "egress")  # of what a recording says of itself
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


class RecordingWriter(Closing):
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
        try:
            directory.mkdir(parents=True, exist_ok=True)
            used = any(directory.iterdir())
        except OSError as error:
            raise UsageError(f"cannot record into {directory}: {error.strerror}") from error
        if used:
            raise UsageError(f"cannot record into {directory}: it is not empty; name a new directory")
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

    def _open_next(self) -> None:
        self.close()
        self._part += 1
        path = self._directory / f"recording-{self._part:05d}.avro"
        self._file = path.open("xb")
        self._writer = Writer(self._file, _SCHEMA, "null", BLOCK_BYTES, _metadata(self._about, self._part))
        self._writer.flush()  # a file without its header is unreadable


class _File:
    """One file of a recording: its metadata, and its blocks up to a torn end.

    A block that fails at the end of the file was cut off while it was written; one that fails before is damaged.
    """

    def __init__(self, path: Path) -> None:
        """Raises UsageError for what is no Avro container file, or is damaged."""
        self.path = path
        self.metadata: dict[str, str] | None = None  # none where the file ends within its header
        self._end = 0  # of the last whole block
        for _ in self.blocks():
            continue
        self.torn = path.stat().st_size - self._end  # bytes

    def blocks(self) -> Iterator[Any]:
        with self.path.open("rb") as file:
            if not _MAGIC.startswith(file.read(len(_MAGIC))):
                raise UsageError(f"{self.path} is not an Avro container file")
            file.seek(0)
            try:
                blocks = fastavro.block_reader(file, _SCHEMA)
                self.metadata, self._end = blocks.metadata, file.tell()
                for block in blocks:
                    self._end = block.offset + block.size
                    yield block
            except Exception as error:  # on damaged bytes fastavro raises what it happens to run into
                if file.tell() < os.fstat(file.fileno()).st_size:
                    raise UsageError(f"{self.path} is damaged in the block at byte {self._end}: {error}") from error

    def messages(self) -> Iterator[Recorded]:
        for block in self.blocks():
            try:
                found = [_recorded(record) for record in block]
            except Exception as error:  # as above
                raise UsageError(f"{self.path} is damaged: {error}") from error
            yield from found


class Recording:
    """A recording on disk, opened by `read_recording`. Files are read when asked for, one at a time."""

    def __init__(self, directory: Path, about: About, files: list[_File]) -> None:
        self.directory = directory
        self.about = about
        self._files = files

    @property
    def torn_bytes(self) -> int:
        """How many bytes at the end of the last file a crash left incomplete; they are not read."""
        return sum(file.torn for file in self._files)

    def messages(self) -> Iterator[Recorded]:
        """Every complete message, in the order of recording (in order of offsets within a partition)."""
        for file in self._files:
            yield from file.messages()

    def queries(self) -> list[Recorded]:
        """What arrived at the ingress, in order of arrival."""
        found = (message for message in self.messages() if message.topic == self.about.ingress)
        return sorted(found, key=lambda each: (each.timestamp, each.partition, each.offset))


def read_recording(directory: Path, say: Callable[[str], object] = lambda _text: None) -> Recording:
    """Open a recording. `UsageError` names the file that is missing, foreign or damaged.

    An incomplete end is accepted of the last file alone, as that is what a killed recorder leaves; `say` is told.
    """
    paths = sorted(directory.glob(_PATTERN)) if directory.is_dir() else []
    if not paths:
        raise UsageError(f"{directory} holds no recording: no file is named {_PATTERN}")
    files = [_File(path) for path in paths]
    for number, file in enumerate(files, start=1):
        if file.path.name != f"recording-{number:05d}.avro":
            raise UsageError(f"{directory} lacks recording-{number:05d}.avro: the recording is incomplete")
        if file.torn and file is not files[-1]:
            raise UsageError(f"{file.path} ends in the middle of a block, but is not the last file: it was cut")
    while len(files) > 1 and files[-1].metadata is None:
        files.pop()  # killed while it began a new file
    if files[0].metadata is None:
        raise UsageError(f"{files[0].path} ends within its header: nothing was recorded")
    recording = Recording(directory, _about(files[0].path, files[0].metadata), files)
    if recording.torn_bytes:
        say(f"{directory} was cut off while it was written: its last {recording.torn_bytes} bytes are left out")
    return recording


def _recorded(record: dict[str, Any]) -> Recorded:
    headers = tuple((header["key"], header["value"]) for header in record["headers"])
    return Recorded(**record | {"timestamp": record["timestamp"] / 1000, "headers": headers})


def _metadata(about: About, part: int) -> dict[str, str]:
    """Return an `About` as an Avro file's metadata: texts as they are, all else as JSON; None is left out."""
    said = {name: value for name, value in asdict(about).items() if value is not None}
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in said.items()}
    return {f"spillway.{name}": text for name, text in (texts | {"part": str(part)}).items()}


def _about(path: Path, said: dict[str, str]) -> About:
    found: dict[str, Any] = {}
    try:
        for each in fields(About):
            text = said.get(f"spillway.{each.name}")
            if text is not None:  # older recordings have fewer
                found[each.name] = text if each.name in _TEXTS else json.loads(text)
        return About(**found)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path} is an Avro file, but not a Spillway recording ({error})") from error
