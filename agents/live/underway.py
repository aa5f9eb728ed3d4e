"""What a stage's processes have under way, in files that outlive them: a dead process's file is its testimony.

    <run_dir>/<pipeline>/underway/<stage>/<process id>-<start>

A process maps its file into memory and writes there, before a model runs, which records it runs, and after it that it
does not any more: some microseconds a batch, and what was written stands however the process ends. It holds a lock on
the file as long as it lives, which the kernel takes back. So a file that can be locked is a dead process's; it goes
when all that it names is committed. All processes of a stage on one machine share the folder: whoever gets the
partitions of a dead one knows what that died of. Only the newest `_MOST_FILES` are kept.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
import struct
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from agents.core.deaths import Place

log = logging.getLogger(__name__)

_COUNT: Final = struct.Struct("<I")
_PLACE: Final = struct.Struct("<IQ")
_HEAD: Final = struct.Struct("<II")  # slots, and the most places of one
_MOST_FILES: Final = 100


def folder_of(run_dir: Path, pipeline: str, stage: str) -> Path:
    return run_dir / pipeline / "underway" / stage


class UnderWay:
    """This process's file. A slot is one model instance's, and is written by its thread alone."""

    def __init__(self, folder: Path, slots: int, most: int) -> None:
        """`most`: places that are written for one slot; of a larger batch the first ones."""
        self._most = most
        self._width = _COUNT.size + most * _PLACE.size
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{os.getpid()}-{time.time_ns()}"
        draft = folder / f".{self._path.name}"
        # Zeros are written, as a hole in the file that finds no disk later would end the process.
        draft.write_bytes(_HEAD.pack(slots, most) + bytes(slots * self._width))
        self._file = draft.open("r+b")
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._map = mmap.mmap(self._file.fileno(), 0)
        draft.rename(self._path)  # from now on others see it, locked

    def begin(self, slot: int, places: Sequence[Place]) -> None:
        at = _HEAD.size + slot * self._width
        known = places[: self._most]
        flat = [number for place in known for number in place]
        struct.pack_into("<" + "IQ" * len(known), self._map, at + _COUNT.size, *flat)
        _COUNT.pack_into(self._map, at, len(known))  # last: until then they do not count

    def end(self, slot: int) -> None:
        _COUNT.pack_into(self._map, _HEAD.size + slot * self._width, 0)

    def close(self) -> None:
        """Take the file away, unless something is under way: then it says so to those who follow."""
        if not _places(bytes(self._map)):
            self._path.unlink(missing_ok=True)
        self._map.close()
        self._file.close()  # and with them goes the lock


def of_the_dead(folder: Path, committed: Mapping[int, int]) -> list[frozenset[Place]]:
    """What each dead process had under way and is not committed; `committed`: of the partitions that are ours.

    Files that say nothing any more are taken away, and the oldest of too many.
    """
    found: list[frozenset[Place]] = []
    for number, (path, places) in enumerate(_dead(folder)):
        open_places = frozenset(place for place in places if place[1] >= committed.get(place[0], 0))
        if open_places and number < _MOST_FILES:
            found.append(open_places)
        else:
            path.unlink(missing_ok=True)
    return found


def _dead(folder: Path) -> Iterator[tuple[Path, frozenset[Place]]]:
    """The files of dead processes, newest first, and what they say."""
    started = sorted(folder.glob("[0-9]*-[0-9]*"), key=lambda path: int(path.name.partition("-")[2]), reverse=True)
    for path in started:
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield path, _places(file.read())
        except FileNotFoundError:
            continue  # another process has taken it away
        except BlockingIOError:
            continue  # its process lives
        except struct.error:
            log.warning("%s is not what a process leaves behind; it is passed over", path)


def _places(content: bytes) -> frozenset[Place]:
    slots, most = _HEAD.unpack_from(content)
    width = _COUNT.size + most * _PLACE.size
    places: set[Place] = set()
    for slot in range(slots):
        at = _HEAD.size + slot * width
        (count,) = _COUNT.unpack_from(content, at)
        begin = at + _COUNT.size
        places.update(_PLACE.unpack_from(content, begin + n * _PLACE.size) for n in range(min(count, most)))
    return frozenset(places)
