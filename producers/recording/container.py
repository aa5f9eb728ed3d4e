"""How much of an Avro container file is whole: its header, and its blocks up to the last sync marker.

Avro readers fail somewhere in a torn last block, some of them after handing out half-read records. Here the lengths
alone are walked first, so that a reader can be given exactly the part that is complete.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from lineage.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

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
        raise UsageError(f"{path} is damaged: its metadata is no text") from error
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
        raise UsageError(f"{found.path} is no Avro container file")
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
