"""Carries a schedule out on processes: it stops, continues, kills and crowds the workers of a pipeline, and no others.

A worker keeps its slot until it is gone; one that takes its place gets the slot, one that comes besides a new one. None
stays stopped: they are continued at the end, and where this process ends before, by a child that waits for that
(`spillway.agents.chaos.guard`).
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, Self

import psutil

from spillway.agents.chaos import guard
from spillway.agents.chaos.schedule import Kind
from spillway.agents.supervise.registry import entries
from spillway.lineage.errors import SpillwayError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from spillway.agents.chaos.schedule import Event

_LOOK_SECONDS: Final = 0.5  # between looks for workers that took others' places
_NAP: Final = 0.05
# As `spillway.agents.workers.processes` starts them.
_WORKER: Final = ("spillway.agents.workers.local", "/agents/workers/shim.py")
_HOG: Final = "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: pass"


def workers_of(run_dir: Path, pipeline: str, stages: Collection[str]) -> list[psutil.Process]:
    """The worker processes on this machine: by stage and front, then by their start (a front's own are first)."""
    found = []
    for entry in entries(run_dir, pipeline):
        if entry.stage not in stages or entry.role != "stage" or not entry.alive():
            continue
        with contextlib.suppress(psutil.Error):
            children = [each for each in psutil.Process(entry.pid).children() if model_of(each)]
            found += sorted(children, key=psutil.Process.create_time)
    return found


def model_of(process: psutil.Process) -> str:
    """The model that a worker was started for; empty for what is no worker, or is gone."""
    with contextlib.suppress(psutil.Error, ValueError, KeyError, TypeError, IndexError):
        command = process.cmdline()
        if any(part == _WORKER[0] or part.endswith(_WORKER[1]) for part in command):
            return str(json.loads(command[-1])["model"])
    return ""


class Strikes:
    """Who has which slot, and what is done to them. Use it as a context: at its end nobody is stopped."""

    def __init__(self, find: Callable[[], Sequence[psutil.Process]]) -> None:
        """`find` gives the processes to strike now. Raises SpillwayError where there is none."""
        self.done: Counter[Kind] = Counter()
        self._find = find
        self._slots = [(each, model_of(each)) for each in find()]
        if not self._slots:
            raise SpillwayError("no worker process was found on this machine: is the stage ready?")
        self._looked = time.monotonic()
        self._stopped: dict[int, float] = {}  # by slot: when it goes on
        self._hogs: list[subprocess.Popen[bytes]] = []

    def __len__(self) -> int:
        return len(self._slots)

    def __enter__(self) -> Self:
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(guard.__file__)], stdin=subprocess.PIPE, start_new_session=True
        )
        self._tell_guard()
        return self

    def __exit__(self, *_exception: object) -> None:
        for process, _ in self._slots:
            with contextlib.suppress(psutil.Error):
                process.resume()
        for hog in self._hogs:
            hog.kill()
            hog.wait()
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        self._guard.wait()

    def play(self, events: Sequence[Event], began: float, stop: threading.Event) -> None:
        """Strike at each event's time after `began` (monotonic); returns when the last has passed, or at `stop`.

        Raises SpillwayError where a worker is another user's.
        """
        waiting = deque(events)
        while (waiting or self._stopped) and not stop.is_set():
            due = min([waiting[0].at + began if waiting else float("inf"), *self._stopped.values()])
            now = time.monotonic()
            if due > now:
                stop.wait(min(due - now, _NAP))
                continue
            for slot in [slot for slot, until in self._stopped.items() if until <= now]:
                self._continue(slot)
            while waiting and waiting[0].at + began <= now:
                self._strike(waiting.popleft(), now)
        for slot in list(self._stopped):
            self._continue(slot)

    def _strike(self, event: Event, now: float) -> None:
        process = self._at(event.slot, now)
        if process is None:
            return
        try:
            if event.kind is Kind.STOP:
                process.suspend()
                self._stopped[event.slot] = max(self._stopped.get(event.slot, 0.0), now + event.seconds)
            elif event.kind is Kind.KILL:
                process.kill()
            else:
                self._crowd(process, event.seconds)
        except psutil.NoSuchProcess:
            return
        except psutil.AccessDenied as error:
            raise SpillwayError(
                f"process {process.pid} belongs to another user: serve the pipeline as the current user"
            ) from error
        self.done[event.kind] += 1

    def _continue(self, slot: int) -> None:
        del self._stopped[slot]
        with contextlib.suppress(psutil.NoSuchProcess):
            self._slots[slot][0].resume()

    def _crowd(self, process: psutil.Process, seconds: float) -> None:
        """Take up the processor that a worker is on, where the system tells; else any."""
        hog = subprocess.Popen([sys.executable, "-I", "-S", "-c", _HOG.format(seconds)])
        self._hogs = [*(each for each in self._hogs if each.poll() is None), hog]
        if hasattr(process, "cpu_num") and hasattr(process, "cpu_affinity"):
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(hog.pid).cpu_affinity([process.cpu_num()])

    def _at(self, slot: int, now: float) -> psutil.Process | None:
        """Who has a slot; None where nobody has it now."""
        if self._empty(slot) and now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._replace()
        return None if self._empty(slot) else self._slots[slot][0]

    def _empty(self, slot: int) -> bool:
        return slot >= len(self._slots) or not _runs(self._slots[slot][0])

    def _replace(self) -> None:
        """Give the slots of those that are gone to who came since, of the same model, and new ones to the rest."""
        known = {process for process, _ in self._slots}
        came = [(each, model_of(each)) for each in self._find() if each not in known]
        for slot, (process, model) in enumerate(self._slots):
            if came and not _runs(process):
                chosen = next((each for each in came if each[1] == model), None)
                if chosen is not None:
                    came.remove(chosen)
                    self._slots[slot] = chosen
                    self._stopped.pop(slot, None)
        self._slots += came
        self._tell_guard()

    def _tell_guard(self) -> None:
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):  # it was killed
            self._guard.stdin.write(" ".join(str(process.pid) for process, _ in self._slots).encode() + b"\n")
            self._guard.stdin.flush()


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
