"""What stands between a stage and a model that ends or hangs its process: time-outs and testimonies.

A batch that runs beyond its time-out cannot be interrupted in a thread: the process ends itself, and names it. Where
the model's state is in the process, too, a batch is noted before the model gets it, so that the processes after this
one know what it died of (`spillway.agents.core.crash_suspects`, `UnderWay`).

`running` is called by the models' threads, a slot each; the rest is the loop's.
"""

from __future__ import annotations

import fcntl
import logging
import math
import mmap
import os
import re
import struct
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from spillway.agents.core.actions import Failed, Work
from spillway.agents.core.crash_suspects import Care, Crashes, place_of
from spillway.agents.workers.forks import ours
from spillway.lineage import reasons
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from spillway.agents.core.crash_suspects import Place
    from spillway.agents.core.request import Request

log = logging.getLogger(__name__)


# What a stage's processes have under way, in files that outlive them: a dead process's file is its testimony.
#
#     <run_dir>/<pipeline>/underway/<stage>/<process id>-<start>
#
# A process maps its file into memory and writes there, before a model runs, which records it runs, and after it that it
# does not any more: some microseconds a batch, and what was written stands however the process ends. It holds a lock on
# the file as long as it lives, which the kernel takes back. So a file that can be locked is a dead process's; it goes
# when all that it names is committed. All processes of a stage on one machine share the folder: whoever gets the
# partitions of a dead one knows what that died of. Only the newest `_MOST_FILES` are kept.

_COUNT: Final = struct.Struct("<I")
_PLACE: Final = struct.Struct("<IQ")
_HEAD: Final = struct.Struct("<II")  # slots, and the most places of one
_NAME: Final = re.compile(r"[0-9]+-([0-9]+)")  # else it is somebody else's: users see the folder
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
        self._file = ours(draft.open("r+b"))
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._map = ours(mmap.mmap(self._file.fileno(), 0))
        draft.rename(self._path)  # from now on others see it, locked

    def begin(self, slot: int, places: Collection[Place]) -> None:
        at = _HEAD.size + slot * self._width
        known = list(dict.fromkeys(places))[: self._most]  # those of a message of many truths are one
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
    started = [(int(found[1]), path) for path in folder.glob("*-*") if (found := _NAME.fullmatch(path.name))]
    for _, path in sorted(started, reverse=True):
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield path, _places(file.read())
        except FileNotFoundError:
            continue  # another process has taken it away
        except BlockingIOError:
            continue  # its process lives
        except struct.error:
            log.warning("%s is not a file that a stage process left; ignoring it", path)


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


_NAMED = 5  # records in an error's text
_LOOK_SECONDS = 1.0


class HungModelError(ModelError):
    """A model ran a batch beyond its time-out; the thread that it holds cannot be had back."""


class CrashWatch:
    """The guard of one stage process. Without a `folder` nothing is noted."""

    def __init__(
        self, stage: str = "", *, timeout: float = math.inf, folder: Path | None = None, slots: int = 1, most: int = 1
    ) -> None:
        """`timeout`: seconds of a batch. Of what is noted, `slots`: model instances; `most`: records in a batch."""
        self.deaths = Crashes()
        self._stage = stage
        self._timeout = timeout
        self._folder = folder
        self._under_way = None if folder is None else UnderWay(folder, slots, most)
        self._running: dict[int, Run] = {}  # by slot
        self._timer: asyncio.TimerHandle | None = None

    # What runs -------------------------------------------------------------------------------------------------

    @contextmanager
    def running(self, slot: int, requests: Sequence[Request]) -> Iterator[None]:
        """Record that a model runs some requests, until the context ends."""
        run = Run(requests, time.monotonic())
        if self._under_way is not None:
            self._under_way.begin(slot, [place_of(request) for request in requests])
        self._running[slot] = run
        try:
            yield
        finally:
            self._running.pop(slot, None)
            if self._under_way is not None:
                self._under_way.end(slot)

    @property
    def busy(self) -> set[Place]:
        """The records that models have been running for a while, within their time-outs."""
        return busy_places(list(self._running.values()), time.monotonic())

    def watch(self, loop: asyncio.AbstractEventLoop, crashed: Callable[[BaseException], None]) -> None:
        """Look each second for a batch that is beyond its time-out; `crashed` ends the process."""
        hung = self.hung()
        if hung is not None:
            crashed(hung)
        else:
            self._timer = loop.call_later(_LOOK_SECONDS, self.watch, loop, crashed)

    def hung(self) -> HungModelError | None:
        """The error of a batch that is beyond its time-out, if there is one."""
        now = time.monotonic()
        for run in list(self._running.values()):
            if now - run.began > self._timeout:
                named = [f"{place_text(request)} ({request.request_id!r})" for request in run.requests[:_NAMED]]
                more = ", .." if len(run.requests) > _NAMED else ""
                return HungModelError(
                    f"stage {self._stage!r}: its model has run a batch of {len(run.requests)} for more than "
                    f"{self._timeout:g} s, its timeout ('timeout' in the pipeline file), and cannot be interrupted: "
                    f"this process ends. The model may hang on {', '.join(named)}{more}"
                )
        return None

    # What processes died of ------------------------------------------------------------------------------------

    def look(self, committed: Mapping[int, int]) -> None:
        """Learn what processes before, or beside, this one died of; `committed`: of the partitions that are ours."""
        if self._folder is not None:
            self.deaths = Crashes(of_the_dead(self._folder, committed))

    def care(self, request: Request) -> Care:
        return self.deaths.care(request) if self.deaths else Care.NONE

    def guilty(self, request: Request) -> Failed:
        """The failure of a request that its processes died of, alone the last times."""
        deaths = f"{self.deaths.of(request)} processes of stage {self._stage!r} ended while they ran it"
        return Failed(reasons.MODEL_DIED, f"{place_text(request)}: {deaths}; the last times it ran alone")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._under_way is not None:
            self._under_way.close()


class Run(NamedTuple):
    """A model's run of some requests."""

    requests: Sequence[Request]
    began: float  # monotonic


def busy_places(runs: Iterable[Run], now: float) -> set[Place]:
    """The records of what has been running for a while."""
    return {
        (request.partition, offset)
        for run in runs
        if run.began <= now - _LOOK_SECONDS
        for request in run.requests
        for offset in (request.offsets if isinstance(request, Work) else [part.offset for part in request.parts])
    }


def place_text(request: Request) -> str:
    partition, offset = place_of(request)
    return f"{request.parts[0].payload.record.topic}[{partition}] offset {offset}"
