"""What stands between a stage and a model that ends or hangs its process: time-outs and testimonies.

A batch that runs beyond its time-out cannot be interrupted in a thread: the process ends itself, and names it. Where
the model's state is in the process, too, a batch is noted before the model gets it, so that the processes after this
one know what it died of (`agents.core.deaths`, `agents.live.underway`).

`running` is called by the models' threads, a slot each; the rest is the loop's.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING

from agents.core.actions import Failed, Work
from agents.core.deaths import Care, Deaths, place_of
from agents.live.underway import UnderWay, of_the_dead
from lineage import reasons
from lineage.errors import ModelError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from agents.core.deaths import Place
    from agents.core.request import Request

log = logging.getLogger(__name__)

_NAMED = 5  # records in an error's text
_LOOK_SECONDS = 1.0


class HungModelError(ModelError):
    """A model ran a batch beyond its time-out; the thread that it holds cannot be had back."""


class Guard:
    """The guard of one stage process. Without a `folder` nothing is noted."""

    def __init__(
        self,
        stage: str = "",
        *,
        timeout: float = math.inf,
        folder: Path | None = None,
        slots: int = 1,
        most: int = 1,
    ) -> None:
        """`timeout`: seconds of a batch. `slots`: model instances; `most`: records in a batch."""
        self.deaths = Deaths()
        self._stage = stage
        self._timeout = timeout
        self._folder = folder
        self._under_way = None if folder is None else UnderWay(folder, slots, most)
        self._running: list[_Running | None] = [None] * slots
        self._timer: asyncio.TimerHandle | None = None

    # What runs -------------------------------------------------------------------------------------------------

    def running(self, slot: int, requests: Sequence[Request]) -> _Running:
        return _Running(self, slot, requests)

    def entered(self, run: _Running) -> None:
        if self._under_way is not None:
            self._under_way.begin(run.slot, [place_of(request) for request in run.requests])
        self._running[run.slot] = run

    def left(self, run: _Running) -> None:
        self._running[run.slot] = None
        if self._under_way is not None:
            self._under_way.end(run.slot)

    @property
    def busy(self) -> set[Place]:
        """The records that models have been running for a while, within their time-outs."""
        since = time.monotonic() - _LOOK_SECONDS
        return {
            (request.partition, offset)
            for run in list(self._running)
            if run is not None and run.began <= since
            for request in run.requests
            for offset in offsets_of(request)
        }

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
        for run in list(self._running):
            if run is not None and now - run.began > self._timeout:
                named = [f"{place_text(request)} ({request.request_id!r})" for request in run.requests[:_NAMED]]
                more = ", .." if len(run.requests) > _NAMED else ""
                return HungModelError(
                    f"stage {self._stage!r}: its model has run a batch of {len(run.requests)} for more than "
                    f"{self._timeout:g} s, its time-out ('timeout' in the pipeline file), and cannot be interrupted: "
                    f"this process ends. It may hang on {', '.join(named)}{more}"
                )
        return None

    # What processes died of ------------------------------------------------------------------------------------

    def look(self, committed: Mapping[int, int]) -> None:
        """Learn what processes before, or beside, this one died of; `committed`: of the partitions that are ours."""
        if self._folder is not None:
            self.deaths = Deaths(of_the_dead(self._folder, committed))

    def care(self, request: Request) -> Care:
        return self.deaths.care(request) if self.deaths else Care.NONE

    def guilty(self, request: Request) -> Failed:
        """The failure of a request that its processes died of, alone the last times."""
        deaths = f"{self.deaths.of(request)} processes of stage {self._stage!r} ended with it"
        return Failed(reasons.MODEL_DIED, f"{place_text(request)}: {deaths}; it was alone the last times")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._under_way is not None:
            self._under_way.close()


class _Running:
    """A model's run of some requests; the context that says so."""

    __slots__ = ("_guard", "began", "requests", "slot")

    def __init__(self, guard: Guard, slot: int, requests: Sequence[Request]) -> None:
        self._guard = guard
        self.slot = slot
        self.requests = requests
        self.began = 0.0

    def __enter__(self) -> None:
        self.began = time.monotonic()
        self._guard.entered(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._guard.left(self)


def place_text(request: Request) -> str:
    partition, offset = place_of(request)
    return f"{request.parts[0].payload.record.topic}[{partition}] offset {offset}"


def offsets_of(request: Request) -> Sequence[int]:
    return request.offsets if isinstance(request, Work) else [part.offset for part in request.parts]
