"""Looks at the children from outside, in a thread, so that a slow answer never holds up the supervisor.

Two things are looked at: the metrics that each process shows (for people), and what each stage's consumer group has
committed (for the watchdog). The supervisor takes the latest of both without waiting.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Protocol

from agents.supervise.child import STANDBY
from agents.supervise.registry import entries
from agents.supervise.scrape import Figures, Snapshot, figures, scrape
from lineage.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agents.supervise.watchdog import GroupSight

log = logging.getLogger(__name__)


class Groups(Protocol):
    """Something that can look at stages' consumer groups."""

    def look(self, stages: Sequence[str]) -> Mapping[str, GroupSight]:
        """What each stage's group is at; may block for seconds. Raises `BrokerError` where that cannot be seen."""
        ...

    def close(self) -> None:
        """Look no more."""
        ...


class MetricsReader:
    """Readings of all processes of a pipeline, each against the one before."""

    def __init__(self, run_dir: Path, pipeline: str) -> None:
        self._run_dir = run_dir
        self._pipeline = pipeline
        self._before: dict[tuple[str, int], Snapshot] = {}

    def read(self, now: float) -> dict[str, Figures]:
        found: dict[str, Figures] = {}
        latest: dict[tuple[str, int], Snapshot] = {}
        for entry in entries(self._run_dir, self._pipeline):
            snapshot = scrape(entry, now) if entry.role != STANDBY and entry.alive() else None
            if snapshot is not None:
                key = (entry.name, entry.pid)
                latest[key] = snapshot
                found[entry.name] = figures(entry, snapshot, self._before.get(key))
        self._before = latest
        return found


class Observer:
    """The thread. `figures` and `take_sights` give what was seen last."""

    def __init__(self, metrics: MetricsReader, groups: Groups | None, stages: Sequence[str], every: float) -> None:
        """`every`: seconds between looks at the groups; metrics are read each second."""
        self.figures: Mapping[str, Figures] = {}
        self._metrics = metrics
        self._groups = groups
        self._stages = stages
        self._every = every
        self._sights: tuple[float, Mapping[str, GroupSight]] | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop looking; returns when the thread is done, or soon."""
        self._stopping.set()
        self._thread.join(5.0)

    def take_sights(self) -> tuple[float, Mapping[str, GroupSight]] | None:
        """What the groups were at, and when, if that is new since the last call."""
        with self._lock:
            sights, self._sights = self._sights, None
        return sights

    def _run(self) -> None:
        next_groups = time.monotonic() + self._every
        while not self._stopping.wait(min(1.0, self._every)):
            now = time.monotonic()
            self.figures = self._metrics.read(now)
            if self._groups is not None and now >= next_groups:
                next_groups = now + self._every
                self._look(self._groups)
        if self._groups is not None:
            self._groups.close()

    def _look(self, groups: Groups) -> None:
        try:
            sights = groups.look(self._stages)
        except BrokerError as error:
            log.warning("cannot see what the stages have committed: %s", error)
            return
        with self._lock:
            self._sights = (time.monotonic(), sights)
