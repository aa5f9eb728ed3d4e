"""What a pipeline of do-nothing models takes of each process, under a steady load and without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import psutil

from spillway.agents.bench import overhead_requests as requests
from spillway.agents.broker import EmbeddedBroker
from spillway.agents.cli.options import cache_dir
from spillway.agents.supervise.registry import ServeEntry, entries
from spillway.agents.supervise.scrape import members
from spillway.lineage.errors import SpillwayError
from spillway.producers.client.exchange import Exchange
from spillway.producers.connection import ClientSettings
from spillway.producers.load import generated, schedule
from spillway.producers.load.generator import Pace, run_load
from spillway.producers.load.payloads import signature_payload
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spillway.producers.load.tally import LoadResult
    from spillway.topology.load import Pipeline

KAFKA, SENDER, SUPERVISOR = "kafka", "sender", "supervisor"
_MODELS: Final = Path(__file__).with_name("overhead_models.py")
_ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_START_SECONDS: Final = 120.0
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

    def steady(self, rate: float, seconds: float, *, slo: float | None = None) -> tuple[LoadResult, Spent]:
        """Send Poisson arrivals, first to warm up, then for `seconds` that are measured."""
        spec = self.pipeline.spec
        due = schedule.poisson(rate, _WARM_SECONDS + seconds, np.random.default_rng(0))
        warm = int(np.searchsorted(due, _WARM_SECONDS))
        readings: list[_Reading] = []

        def progress(sent: int, ended: int) -> None:
            if (not readings and sent >= warm) or (len(readings) == 1 and sent >= len(due)):
                readings.append(self._read(ended))

        exchange = Exchange(self.settings, spec.name)
        try:
            load = generated(due, signature_payload(spec))
            result = run_load(exchange, load, Pace(slo=slo or spec.slo, progress=progress))
        finally:
            exchange.close()
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
        cpu: dict[str, float] = {}
        for pid, name in self.pids.items():
            times = psutil.Process(pid).cpu_times()
            cpu[name] = times.user + times.system
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
def measured(work: Path, text: str, *, policy: str | None = None, log_requests: bool = False) -> Iterator[Measured]:
    """Serve a pipeline, whose file is `text`, on a broker of its own in the folder `work`, by the command."""
    work.mkdir()
    shutil.copy(_MODELS, work)
    (work / "pipeline.yaml").write_text(text)
    options = list(requests.JAVA_OPTIONS) if log_requests else []
    with EmbeddedBroker(work / "kafka", cache_dir=cache_dir(), java_options=options) as broker:
        running = broker.folder.running()
        if running is None:
            raise SpillwayError(f"Kafka has ended; see its log, {broker.folder.log}")
        settings = ClientSettings(bootstrap=broker.bootstrap)
        with _served(work, broker.bootstrap, policy):
            pipeline = load(work / "pipeline.yaml")
            pids = {**_processes(work / "run", pipeline), running.pid: KAFKA}
            topics = requests.topic_names(settings) if log_requests else {}
            yield Measured(pipeline, settings, pids, broker.folder.log if log_requests else None, topics)


@contextmanager
def _served(work: Path, bootstrap: str, policy: str | None) -> Iterator[None]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "spillway.agents.cli.main",
        "serve",
        "pipeline.yaml",
        "--quiet",
        "--run-dir",
        "run",
    ]
    more = ["--bootstrap", bootstrap, "--ready-file", "ready", *(["--policy", policy] if policy else [])]
    with (work / "serve.log").open("wb") as log:
        serving = subprocess.Popen(
            [*command, *more], cwd=work, stdout=log, stderr=log, env={**_ONE_THREAD, **os.environ}
        )
    try:
        give_up = time.monotonic() + _START_SECONDS
        while not (work / "ready").exists():
            if serving.poll() is not None or time.monotonic() > give_up:
                raise SpillwayError(f"the pipeline did not become ready: {(work / 'serve.log').read_text()[-2000:]}")
            time.sleep(0.05)
        yield
    finally:
        serving.terminate()
        serving.wait(_START_SECONDS)


def _processes(run_dir: Path, pipeline: Pipeline) -> dict[int, str]:
    """Name the processes by what they are; those of a shard by their roles."""
    name = pipeline.spec.name
    found = {entry.pid: entry.stage for entry in entries(run_dir, name)}
    for stage in pipeline.spec.stages:
        if stage.stateful:
            standing = members(run_dir, name, stage.name)
            found |= {entry.pid: f"{stage.name} {role}" for role, (entry, _) in standing.items()}
    served = ServeEntry.read(run_dir, name)
    if served is not None:
        found[served.pid] = SUPERVISOR
    return {**found, os.getpid(): SENDER}
