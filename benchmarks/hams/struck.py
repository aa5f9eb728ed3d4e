"""A service under a steady load whose processes are killed, and when it goes on. Times in unix seconds.

Processes are killed with SIGKILL, and their supervisor, which is their parent, reports it; or they are stopped with
SIGSTOP, which nobody sees but by the silence. All processes are up, and each backup has all durable versions, before a
blow: those that were started in the place of the last one's dead have loaded their models, and take no processor.

Fig. 6 (HAMS, section IV-C): a stage's states are held up by a file, which its processes' writers wait for
(`benchmarks.hams.held`), while what it sends goes on; the next stage's states rest on what is then lost.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from confluent_kafka import Consumer, TopicPartition

from benchmarks.hams.cells import Cell, Sender, bursts, sending, variant
from benchmarks.hams.services import SERVICES
from benchmarks.steady import until
from spillway.agents.supervise.registry import entries
from spillway.agents.supervise.scrape import BACKUP, PRIMARY, members
from spillway.lineage.errors import SpillwayError
from spillway.lineage.headers import HOPS
from spillway.lineage.hops import decode
from spillway.lineage.metric_names import STATE_BACKUP_LAG_VERSIONS, STATE_EPOCH
from spillway.topology import topics
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from benchmarks.hams.blows import Blow
    from benchmarks.hams.setting import Setting
    from spillway.agents.supervise.registry import Entry
    from spillway.agents.supervise.scrape import Standing
    from spillway.agents.supervise.service import Service
    from spillway.topology.load import Pipeline

_BATCH = 64  # at most
_HELD = 1.0  # seconds for which states are held before the kill
_SOONER = 0.02  # seconds from the kill to the next query that is due
_LEAD = 1.0  # seconds from asking for a load to its beginning
_APART = 0.2  # seconds between two bursts of the requests ahead
_WARM_UP = 2.0  # seconds of load before the first blow
_WITHIN = 120.0
_READ = 3.0
_UP = frozenset({"running", "standby"})
_AGAIN = re.compile(r"computed (\d+) requests again")  # as a process logs it that begins a reign of lineage-stash


@dataclass(frozen=True, slots=True)
class Recovered:
    """What one blow came to, in seconds from it on."""

    message: float  # to the first message of the stage, of those that were struck, that was the last to send one
    outcome: float  # to the first outcome, at the client, of a query that was due after it
    again: int  # requests that were computed again from a log (lineage-stash)


def written(blow: Blow, given: Mapping[str, Any], hold: Path) -> dict[str, Any]:
    """The pipeline file's content for a blow: with its standbys, and with the stage whose states can be held."""
    return {**given, "stages": [_stage(stage, blow, hold) for stage in given["stages"]]}


def _stage(stage: Mapping[str, Any], blow: Blow, hold: Path) -> dict[str, Any]:
    made = {key: value for key, value in stage.items() if key != "standby"}
    if stage["name"] in blow.standbys:
        made["standby"] = 1
    if stage["name"] == blow.held:
        inner = {"model": stage["model"], "file": str(hold), "arguments": dict(stage.get("arguments", {}))}
        made |= {"model": "benchmarks.hams.held:held", "arguments": inner}
    return made


@contextmanager
def under_load(setting: Setting, blow: Blow) -> Iterator[Struck]:
    cell = Cell(SERVICES[blow.service], blow.mode, _BATCH)
    hold = setting.folder / "hold"
    file = variant(cell, setting.folder, setting.run(), gather=0.0).path
    file.write_text(yaml.safe_dump(written(blow, yaml.safe_load(file.read_text()), hold), sort_keys=False))
    pipeline = load(file)
    with sending(setting, cell, pipeline) as (service, sender):
        try:
            sender.send(np.arange(0.0, _WARM_UP, 1 / blow.rate))
            yield Struck(setting, blow, pipeline, service, sender, hold)
        finally:
            hold.unlink(missing_ok=True)


class Struck:
    """A pipeline that is served, and what is done to it."""

    def __init__(
        self, setting: Setting, blow: Blow, pipeline: Pipeline, serving: Service, sender: Sender, hold: Path
    ) -> None:
        self._setting, self._blow, self._pipeline = setting, blow, pipeline
        self._serving, self._sender, self._hold = serving, sender, hold
        self._name, self._run_dir = pipeline.spec.name, setting.folder / "run"
        self._rate = blow.rate

    def once(self) -> Recovered:
        """Wait until all is whole, strike, and see when the service goes on."""
        blow, (before, after) = self._blow, self._blow.load
        if blow.ahead:
            self._sender.send(bursts(blow.ahead // _BATCH, _BATCH, _APART))
        standing = self._whole()
        epochs = {stage: int(found[PRIMARY][1].value(STATE_EPOCH)) for stage, found in standing.items()}
        victims = [standing[stage][PRIMARY][0] for stage in blow.primaries]
        victims += [standing[stage][BACKUP][0] for stage in blow.backups]
        victims += [self._replica(stage) for stage in blow.replicas]
        computed = self._again()
        struck: list[float] = []
        timers = [threading.Timer(_LEAD + before - _SOONER, lambda: struck.append(self._strike(victims)))]
        if blow.held:
            timers.append(threading.Timer(_LEAD + before - _HELD, self._hold.touch))
        for timer in timers:
            timer.start()
        began = time.time() + _LEAD
        try:
            result = self._sender.send(np.arange(0.0, before + after, 1 / self._rate), grace=_WITHIN)
        finally:
            for timer in timers:
                timer.join()
            if blow.stopped:
                for entry in victims:
                    os.kill(entry.pid, signal.SIGCONT)
        (at,) = struck
        late = result.due >= at - began
        outcome = float(np.min(result.finished[late])) - (at - began)
        awaited = {**epochs, **dict.fromkeys(blow.replicas)}
        message = max(self._first(stage, epoch, at) for stage, epoch in awaited.items()) - at
        return Recovered(message, outcome, self._again() - computed)

    def _strike(self, victims: list[Entry]) -> float:
        at = time.time()
        for entry in victims:
            os.kill(entry.pid, signal.SIGSTOP if self._blow.stopped else signal.SIGKILL)
        self._hold.unlink(missing_ok=True)
        return at

    def _whole(self) -> dict[str, dict[str, Standing]]:
        """The members of the stages that are struck, once every process is up and the backups have all versions."""
        found: dict[str, dict[str, Standing]] = {}

        def whole() -> bool:
            found.update({stage: members(self._run_dir, self._name, stage) for stage in self._blow.reigns})
            up = all(child.state in _UP for child in self._serving.supervisor.rows())
            return up and all(map(_is_whole, found.values()))

        until(whole, f"all processes of {self._name} are whole; see its logs", _WITHIN)
        return found

    def _replica(self, stage: str) -> Entry:
        for entry in entries(self._run_dir, self._name):
            if entry.stage == stage and entry.role == "stage" and entry.alive():
                return entry
        raise SpillwayError(f"{self._name}: no process of stage {stage} is there; see its logs")

    def _again(self) -> int:
        logs = (self._run_dir / self._name / "logs").glob("*.log")
        return sum(int(count) for log in logs for count in _AGAIN.findall(log.read_text(errors="replace")))

    def _first(self, stage: str, epoch: int | None, since: float) -> float:
        """When the stage sent the first message of a newer epoch; None for `epoch`: the first one after the kill.

        Messages have the time at which their producer made them, so none of a dead one's has a later time.
        """
        found = []
        for message in self._sent_by(stage, since):
            headers, at = dict(message.headers() or ()), message.timestamp()[1] / 1e3
            hops = decode(headers[HOPS]) if HOPS in headers else ()
            if not hops or hops[0].stage != stage:
                continue
            if at > since if epoch is None else hops[0].epoch > epoch:
                found.append(at)
        if not found:
            what = "after it was killed" if epoch is None else f"in an epoch after {epoch}"
            raise SpillwayError(f"{self._name}: stage {stage} sent nothing {what}; see its logs")
        return float(min(found))

    def _sent_by(self, stage: str, since: float) -> Iterator[Any]:
        pipeline, settings = self._pipeline, self._setting.cluster.confluent()
        after = pipeline.graph.successors[stage]
        read = [topics.stage_input(self._name, each) for each in after] or [topics.outcomes(self._name)]
        partitions = range(pipeline.spec.partitions)
        asked = [TopicPartition(topic, part, int((since - 1) * 1000)) for topic in read for part in partitions]
        consumer = Consumer({**settings, "group.id": "bench", "enable.auto.commit": False})
        try:
            starts = consumer.offsets_for_times(asked, timeout=_WITHIN)
            consumer.assign([place for place in starts if place.offset >= 0])
            while batch := consumer.consume(1_000, _READ):
                yield from batch
        finally:
            consumer.close()


def _is_whole(found: Mapping[str, Standing]) -> bool:
    return PRIMARY in found and BACKUP in found and found[BACKUP][1].value(STATE_BACKUP_LAG_VERSIONS) == 0
