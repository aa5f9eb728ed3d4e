"""A planned pipeline under a load: its queries' latencies, and over time its workers and what they cost."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from spillway.agents.supervise.registry import entries
from spillway.agents.supervise.scrape import scrape
from spillway.lineage.metric_names import MODEL_INSTANCES, MODEL_INSTANCES_WANTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from spillway.producers.load.tally import LoadResult
    from spillway.topology.capacity.plan import Plan

EVERY: Final = 0.5  # seconds between two looks at the workers
HOUR: Final = 3600.0


@dataclass
class Workers:
    """By stage, how many workers were wanted and ready. Times are in seconds from the start of the load."""

    plan: Plan
    times: list[float] = field(default_factory=list)
    wanted: dict[str, list[int]] = field(default_factory=dict)
    ready: dict[str, list[int]] = field(default_factory=dict)

    def note(self, now: float, found: dict[str, tuple[int, int]]) -> None:
        """`found`: ready and wanted, by stage; a stage that does not answer is as it was."""
        self.times.append(now)
        for name, stage in self.plan.stages.items():
            for series, known in zip((self.ready, self.wanted), found.get(name, (None, None)), strict=True):
                past = series.setdefault(name, [])
                past.append((past[-1] if past else stage.count) if known is None else known)

    def rates(self) -> NDArray[np.float64]:
        """Cost an hour at each time: a unit costs from its order until its worker has drained."""
        each = [
            stage.price * np.maximum(self.wanted[name], self.ready[name]) for name, stage in self.plan.stages.items()
        ]
        return np.asarray(sum(each), np.float64)

    def costs(self) -> NDArray[np.float64]:
        """Cost up to each time, since the first."""
        return np.concatenate([[0.0], np.cumsum(self.rates()[:-1] * np.diff(self.times))]) / HOUR


@dataclass
class Run:
    """What one served plan came to. Latencies in seconds, from when a query was due."""

    plan: Plan
    result: LoadResult
    workers: Workers

    @cached_property
    def latency(self) -> NDArray[np.float64]:
        return self.result.finished - self.result.due

    @property
    def lost(self) -> int:
        return int(np.isnan(self.latency).sum())

    @property
    def misses(self) -> NDArray[np.bool_]:
        """Queries that were not answered within the SLO."""
        return ~(self.latency <= self.plan.slo)

    @property
    def p99(self) -> float:
        return float(np.nanquantile(self.latency, 0.99))


@contextmanager
def watched(run_dir: Path, plan: Plan, began: float, say: Callable[[str], None]) -> Iterator[Workers]:
    """Look at the workers while the context is open; says every change. `began`: the load, on the monotonic clock."""
    found, stop = Workers(plan), threading.Event()

    def watch() -> None:
        while not stop.is_set():
            now, before = time.monotonic() - began, _last(found)
            found.note(now, _counted(run_dir, plan.pipeline))
            for name, (ready, wanted) in _last(found).items():
                if before and before[name] != (ready, wanted):
                    say(f"{now:5.1f} s  {name}: {ready} workers ready, {wanted} wanted")
            stop.wait(EVERY)

    thread = threading.Thread(target=watch, name="watch", daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def _last(found: Workers) -> dict[str, tuple[int, int]]:
    return {name: (series[-1], found.wanted[name][-1]) for name, series in found.ready.items()}


def _counted(run_dir: Path, pipeline: str) -> dict[str, tuple[int, int]]:
    return {
        entry.stage: (int(page.value(MODEL_INSTANCES)), int(page.value(MODEL_INSTANCES_WANTED)))
        for entry in entries(run_dir, pipeline)
        if entry.role == "stage" and (page := scrape(entry, 0.0)) is not None
    }
