"""How soon a service goes on after its primaries die: from the kill to the first message of the promoted backup.

A service is under a steady load. Processes are killed with SIGKILL, and their supervisor, which is their parent,
reports it; or they are stopped with SIGSTOP, which nobody sees but by the silence. What counts is when, by Kafka's
timestamps, the first message of the new epoch was sent (the paper's measure, discovery included); beside it, the time
from the kill to the first outcome, at the client, of a query that was due after it. Between two kills the members are
whole again.
"""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from confluent_kafka import Consumer, TopicPartition

from agents.bench.hams.cells import Cell, Sender, variant
from agents.bench.hams.services import SERVICES
from agents.bench.pard.output import Table
from agents.supervise.members import BACKUP, PRIMARY, members
from agents.supervise.registry import entries
from agents.supervise.service import ServiceSettings, served
from lineage.errors import SpillwayError
from lineage.headers import HOPS
from lineage.hops import decode
from lineage.metric_names import STATE_BACKUP_LAG_VERSIONS, STATE_EPOCH
from topology import topics

if TYPE_CHECKING:
    from pathlib import Path

    from agents.bench.hams.setting import Setting
    from agents.supervise.registry import Entry
    from producers.connection import ClientSettings
    from topology.load import Pipeline

RATE = 50.0  # queries a second
_BEFORE, _AFTER = 3.0, 6.0  # seconds of load before and after a kill
_WITHIN = 60.0
_POLL = 0.05


@dataclass(frozen=True, slots=True)
class Blow:
    """What is done to a service: whose primaries, and which stateless stages' replicas."""

    name: str
    service: str
    primaries: tuple[str, ...]
    replicas: tuple[str, ...] = ()
    stopped: bool = False  # by SIGSTOP: only silence tells
    mode: str = "nspb"
    paper_ms: float | None = None


def _blows(names: tuple[str, ...], modes: tuple[str, ...]) -> list[Blow]:
    made = []
    for name in names:
        service = SERVICES[name]
        for mode in (mode for mode in ("nspb", "remus", "lineage-stash") if mode in modes):
            paper = None if service.paper is None else service.paper.recovery[mode]
            made.append(Blow("primary", name, (service.victim,), mode=mode, paper_ms=paper))
    if "bandit" in names:
        made.append(Blow("primary, by silence alone", "bandit", ("bandit",), stopped=True))
    if "ap" in names:
        made.append(Blow("two adjacent primaries", "ap", ("track", "foresee"), paper_ms=172.24))
    if "fd" in names:
        made.append(Blow("stateless and stateful", "fd", ("left",), ("detect-left",), paper_ms=344.79))
    return made


def measure_recovery(setting: Setting) -> dict[str, Any]:
    """Every blow, several times."""
    rows = []
    for blow in _blows(setting.services, setting.modes):
        found = _strike(setting, blow)
        told = ", ".join(f"{1e3 * each[0]:.0f}/{1e3 * each[1]:.0f}" for each in found)
        setting.say(f"{blow.service}, {blow.name}, {blow.mode}: {told} ms to the first message/outcome")
        rows.append(
            {
                "service": blow.service,
                "blow": blow.name,
                "mode": blow.mode,
                "paper_ms": blow.paper_ms,
                "first_message_ms": [round(1e3 * each[0], 1) for each in found],
                "first_outcome_ms": [round(1e3 * each[1], 1) for each in found],
            }
        )
    return {"rows": rows}


def tables(result: dict[str, Any]) -> list[Table]:
    """One row for each blow."""
    rows = [
        [
            SERVICES[row["service"]].title,
            row["blow"],
            row["mode"],
            _spread(row["first_message_ms"]),
            _spread(row["first_outcome_ms"]),
            "-" if row["paper_ms"] is None else f"{row['paper_ms']:.0f}",
        ]
        for row in result["rows"]
    ]
    return [
        Table(
            "From the kill on, ms: median (least to most)",
            ("service", "killed", "mode", "first message of the new epoch", "first outcome at the client", "paper"),
            rows,
            (f"{RATE:g} queries a second, in batches of what is there. The paper's batches are of 64, on GPUs.",),
        )
    ]


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def _strike(setting: Setting, blow: Blow) -> list[tuple[float, float]]:
    """Serve a service and strike it, once for each repeat; give the seconds to message and to outcome of each."""
    cell = Cell(SERVICES[blow.service], blow.mode, 64)
    pipeline = variant(cell, setting.folder, setting.run(), gather=0.0)
    run_dir = setting.folder / "run"
    name = pipeline.spec.name
    with served(ServiceSettings(pipeline, setting.cluster, run_dir, environment=setting.environment), say=setting.say):
        sender = Sender(cell, setting.cluster, name)
        try:
            return [_once(blow, pipeline, setting.cluster, run_dir, sender) for _ in range(setting.repeats)]
        finally:
            sender.close()


def _once(
    blow: Blow, pipeline: Pipeline, cluster: ClientSettings, run_dir: Path, sender: Sender
) -> tuple[float, float]:
    name = pipeline.spec.name
    before = {stage: _whole(run_dir, name, stage) for stage in blow.primaries}
    others = [_replica(run_dir, name, stage) for stage in blow.replicas]
    due = np.arange(0.0, _BEFORE + _AFTER, 1 / RATE)
    struck: list[float] = []

    def strike() -> None:
        struck.append(time.time())
        for entry in (*(entry for entry, _ in before.values()), *others):
            os.kill(entry.pid, signal.SIGSTOP if blow.stopped else signal.SIGKILL)

    timer = threading.Timer(_BEFORE + 1.0, strike)  # a load begins a second after it is asked for
    timer.start()
    began = time.time()
    result = sender.send(due, grace=_WITHIN)
    timer.join()
    offset = struck[0] - began - 1.0
    if blow.stopped:
        for entry, _ in before.values():
            os.kill(entry.pid, signal.SIGCONT)
    late = result.due >= offset
    outcome = float(np.min(result.finished[late])) - offset
    message = max(
        _first(cluster, pipeline, stage, epoch, struck[0]) - struck[0] for stage, (_, epoch) in before.items()
    )
    return message, outcome


def _whole(run_dir: Path, pipeline: str, stage: str) -> tuple[Entry, int]:
    """The primary and its epoch, when there is a backup that has all durable versions."""
    until = time.monotonic() + _WITHIN
    while time.monotonic() < until:
        found = members(run_dir, pipeline, stage)
        primary, backup = found.get(PRIMARY), found.get(BACKUP)
        if primary is not None and backup is not None and backup[1].value(STATE_BACKUP_LAG_VERSIONS) == 0:
            return primary[0], int(primary[1].value(STATE_EPOCH))
        time.sleep(_POLL)
    raise SpillwayError(f"{pipeline}: stage {stage} had no primary with a backup for {_WITHIN:g} s; see its logs")


def _replica(run_dir: Path, pipeline: str, stage: str) -> Entry:
    for entry in entries(run_dir, pipeline):
        if entry.stage == stage and entry.alive():
            return entry
    raise SpillwayError(f"{pipeline}: no process of stage {stage} is there; see its logs")


def _first(cluster: ClientSettings, pipeline: Pipeline, stage: str, epoch: int, since: float) -> float:
    """When, in unix seconds, the first message of a newer epoch of the stage was sent."""
    name = pipeline.spec.name
    after = pipeline.graph.successors[stage]
    read = [topics.stage_input(name, each) for each in after] or [topics.outcomes(name)]
    consumer = Consumer({**cluster.confluent(), "group.id": "bench", "enable.auto.commit": False})
    try:
        asked = [
            TopicPartition(topic, partition, int((since - 1) * 1000))
            for topic in read
            for partition in range(pipeline.spec.partitions)
        ]
        starts = consumer.offsets_for_times(asked, timeout=_WITHIN)
        consumer.assign([place for place in starts if place.offset >= 0])
        found = []
        while batch := consumer.consume(1_000, 1.0):
            for message in batch:
                headers = dict(message.headers() or ())
                hops = decode(headers[HOPS]) if HOPS in headers else ()
                if hops and hops[0].stage == stage and hops[0].epoch > epoch:
                    found.append(message.timestamp()[1] / 1e3)
    finally:
        consumer.close()
    if not found:
        raise SpillwayError(f"{name}: stage {stage} sent nothing in an epoch after {epoch} within {_AFTER:g} s")
    return float(min(found))
