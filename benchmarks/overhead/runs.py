"""What a pipeline of do-nothing models takes of each process, under a steady load and without one."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import psutil

from benchmarks.overhead import requests
from benchmarks.scene import commanded, cpu_of, exchange
from spillway.agents.broker import EmbeddedBroker
from spillway.agents.cli.options import cache_dir
from spillway.agents.supervise.registry import entries
from spillway.agents.supervise.scrape import members
from spillway.lineage.errors import SpillwayError
from spillway.producers.connection import ClientSettings
from spillway.producers.load import schedule
from spillway.producers.load.generator import Pace, generated, run_load
from spillway.producers.load.payloads import signature_payload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spillway.producers.load.tally import LoadResult
    from spillway.topology.load import Pipeline

KAFKA, SENDER, SUPERVISOR = "kafka", "sender", "supervisor"
_MODELS: Final = Path(__file__).with_name("models.py")
_WARM_SECONDS: Final = 2.0  # of every load, before anything is measured
_SETTLE_SECONDS: Final = 2.0


@dataclass(frozen=True)
class Spent:
    """What went on in a stretch of time."""

    seconds: float
    answered: int  # queries
    cpu: Mapping[str, float]  # processor seconds by process
    requests: Mapping[requests.Asked, int]  # none where the broker keeps no log of them


@dataclass
class _Reading:
    at: float
    ended: int
    cpu: dict[str, float]
    logged: int  # bytes of the broker's log
    ports: dict[int, str]


@dataclass
class Measured:
    """A pipeline that is served, and the broker that it is served on."""

    pipeline: Pipeline
    settings: ClientSettings
    pids: Mapping[int, str]
    log: Path | None  # the broker's, where it has its requests
    topics: Mapping[str, str] = field(default_factory=dict)  # names by id

    def steady(self, rate: float, seconds: float) -> tuple[LoadResult, Spent]:
        """Send Poisson arrivals, first to warm up, then for `seconds` that are measured."""
        spec = self.pipeline.spec
        due = schedule.poisson(rate, _WARM_SECONDS + seconds, np.random.default_rng(0))
        warm = int(np.searchsorted(due, _WARM_SECONDS))
        readings: list[_Reading] = []

        def progress(sent: int, ended: int) -> None:
            if (not readings and sent >= warm) or (len(readings) == 1 and sent >= len(due)):
                readings.append(self._read(ended))

        with exchange(self.settings, spec.name, linger=0.0) as sending:
            load = generated(due, signature_payload(spec))
            result = run_load(sending, load, Pace(slo=spec.slo, progress=progress))
        first, last = readings
        return result, self._between(first, last)

    def idle(self, seconds: float) -> Spent:
        """Send nothing."""
        time.sleep(_SETTLE_SECONDS)
        first = self._read(0)
        time.sleep(seconds)
        last = self._read(0)
        return self._between(first, last)

    def _read(self, ended: int) -> _Reading:
        cpu = {name: cpu_of(psutil.Process(pid)) for pid, name in self.pids.items()}
        at = time.monotonic()
        if self.log is None:
            return _Reading(at, ended, cpu, 0, {})
        return _Reading(at, ended, cpu, self.log.stat().st_size, requests.ports(self.pids))

    def _between(self, first: _Reading, last: _Reading) -> Spent:
        cpu = {name: spent - first.cpu[name] for name, spent in last.cpu.items()}
        if self.log is None:
            return Spent(last.at - first.at, last.ended - first.ended, cpu, {})
        with self.log.open("rb") as log:
            log.seek(first.logged)
            lines = log.read(last.logged - first.logged).decode(errors="replace").splitlines(keepends=True)
        asked = requests.count(lines, first.ports | last.ports, self.topics, self.pipeline.spec.name)
        return Spent(last.at - first.at, last.ended - first.ended, cpu, asked)


@contextmanager
def measured(work: Path, text: str, *options: str, log_requests: bool = False) -> Iterator[Measured]:
    """Serve a pipeline, whose file is `text`, on a broker of its own in the folder `work`, by the command."""
    work.mkdir()
    shutil.copy(_MODELS, work / "overhead_models.py")
    java = list(requests.JAVA_OPTIONS) if log_requests else []
    with EmbeddedBroker(work / "kafka", cache_dir=cache_dir(), java_options=java) as broker:
        running = broker.folder.running()
        if running is None:
            raise SpillwayError(f"Kafka has ended; see its log, {broker.folder.log}")
        settings = ClientSettings(bootstrap=broker.bootstrap)
        with commanded(work, text, "--bootstrap", broker.bootstrap, *options) as (pipeline, entry):
            pids = {**_processes(work / "run", pipeline), entry.pid: SUPERVISOR, running.pid: KAFKA}
            topics = requests.topic_names(settings) if log_requests else {}
            yield Measured(pipeline, settings, pids, broker.folder.log if log_requests else None, topics)


def _processes(run_dir: Path, pipeline: Pipeline) -> dict[int, str]:
    """Name the processes by what they are; those of a shard by their roles."""
    name = pipeline.spec.name
    found = {entry.pid: entry.stage for entry in entries(run_dir, name)}
    for stage in pipeline.spec.stages:
        if stage.stateful:
            standing = members(run_dir, name, stage.name)
            found |= {entry.pid: f"{stage.name} {role}" for role, (entry, _) in standing.items()}
    return {**found, os.getpid(): SENDER}
