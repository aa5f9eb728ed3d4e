"""How soon a killed replica's queries are answered again, with a standby and without.

A stage of two replicas answers queries at a steady rate. A replica is killed with SIGKILL; what counts is the time from
the kill to the first outcome, at the client, of a query on one of its partitions that another process has computed. So
it has in it the discovery of the death, the takeover, the compute and the gate. The model answers with its process's id
and loads in no time, which flatters a restart: a restarted replica loads its model first, a standby has done so before.

The paper has 320 ms for a stateless operator of each service; that of a service's own stage is a row of the recovery
section.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from benchmarks.output import Table, median_spread
from benchmarks.scene import serve
from benchmarks.steady import Sent, Steady, until
from spillway.agents.supervise.registry import Entry, entries
from spillway.lineage.keys import partition_for
from spillway.lineage.message import PREDICTION
from spillway.producers.client import Client
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from benchmarks.hams.setting import Setting
    from spillway.lineage.message import Outcome
    from spillway.producers.connection import ClientSettings

PAPER_SECONDS = 0.320  # HAMS, table of recoveries: a stateless stage with a standby, discovery included
_STAGE, _PARTITIONS, _SLO = "reply", 12, 30.0
MOST_KILLS = 8  # of one replica or the other within a minute, before its supervisor gives it up
_WARM, _LONGEST = 3.0, 60.0
_RATE = 50.0  # queries a second


class Witness:
    """The model: it says which process has computed an answer, and of which partition."""

    def predict(self, batch: list[Any]) -> list[dict[str, int]]:
        return [{"pid": os.getpid(), "partition": query["partition"]} for query in batch]


@dataclass(frozen=True, slots=True)
class Kill:
    """What one kill came to, in seconds."""

    first: float  # to the first outcome of the dead one's partitions from another process
    longest: float  # that a query on those partitions took, of those under way or sent until then


def measure(settings: ClientSettings, work: Path, name: str, standbys: int, kills: int, rate: float) -> list[Kill]:
    """Serve a stage of two replicas under load and kill them in turn."""
    file = work / f"{name}.yaml"
    stage = {"name": _STAGE, "model": "benchmarks.hams.standbys:Witness", "workers": {"fronts": 2, "standby": standbys}}
    file.write_text(yaml.safe_dump({"name": name, "slo": _SLO, "partitions": _PARTITIONS, "stages": [stage]}))
    with serve(load(file), settings, work / "run"), Client(name, settings, slo=_SLO) as client:

        def send(number: int) -> Future[Outcome]:
            key = f"query-{number}"
            return client.submit({"partition": partition_for(key.encode(), _PARTITIONS)}, request_id=key, key=key)

        traffic = Steady(rate, send)
        traffic.start()
        found = [_kill(work / "run", name, kill % 2, 2 + standbys, traffic) for kill in range(kills)]
        traffic.end()
        return found


def _kill(run_dir: Path, name: str, replica: int, whole: int, traffic: Steady) -> Kill:
    until(lambda: len(list(_ready(run_dir, name))) == whole, f"{name}: all processes ready", _LONGEST)
    since = time.time()
    time.sleep(_WARM)
    victim = next(entry for entry in _ready(run_dir, name) if entry.role == "stage" and entry.replica == replica)

    def answers(since: float) -> list[Sent]:
        return [each for each in list(traffic.done) if each.due + each.took > since and each.outcome.kind == PREDICTION]

    mine = {each.outcome.outputs["partition"] for each in answers(since) if each.outcome.outputs["pid"] == victim.pid}
    at = time.time()
    os.kill(victim.pid, signal.SIGKILL)

    def after() -> list[Sent]:
        told = ((each, each.outcome.outputs) for each in answers(at))
        return [each for each, outputs in told if outputs["partition"] in mine and outputs["pid"] != victim.pid]

    until(after, f"{name}: an outcome of the killed replica's partitions", _LONGEST)
    first = min(each.due + each.took for each in after())
    until(lambda: any(each.due > first for each in after()), f"{name}: an outcome of a query sent since", _LONGEST)
    return Kill(first - at, max(each.took for each in after()))


def _ready(run_dir: Path, name: str) -> Iterator[Entry]:
    return (e for e in entries(run_dir, name) if e.stage == _STAGE and e.ready and e.alive())


def row(standbys: int, kills: list[Kill]) -> dict[str, Any]:
    firsts = [kill.first for kill in kills]
    return {
        "standbys": standbys,
        "kills": len(kills),
        "first_ms": [round(1000 * first, 1) for first in firsts],
        "first_p50_ms": round(1000 * statistics.median(firsts), 1),
        "longest_query_ms": round(1000 * max(kill.longest for kill in kills), 1),
        "paper_ms": 1000 * PAPER_SECONDS if standbys else None,
    }


def measure_standbys(setting: Setting) -> dict[str, Any]:
    """Kill replicas of two in turn, with a standby and without; eight times each at most."""
    kills, rows = min(setting.repeats, MOST_KILLS), []
    for standbys in (1, 0):
        name = f"standby-{standbys}-{setting.run()}"
        found = row(standbys, measure(setting.cluster, setting.folder, name, standbys, kills, _RATE))
        setting.say(f"{standbys} standbys: {', '.join(f'{each:.0f}' for each in found['first_ms'])} ms to an outcome")
        rows.append(found)
    return {"rate": _RATE, "rows": rows}


def tables(result: dict[str, Any]) -> list[Table]:
    rows = [
        [
            str(each["standbys"]),
            str(each["kills"]),
            median_spread(each["first_ms"], "{:.0f}"),
            f"{each['longest_query_ms']:.0f}",
            f"{1000 * PAPER_SECONDS:.0f}" if each["standbys"] else "-",
        ]
        for each in result["rows"]
    ]
    return [
        Table(
            "A stateless stage of two replicas, from the kill of one on, ms: median (least to most)",
            ("standbys", "kills", "first outcome of its partitions", "longest query", "paper"),
            rows,
            (f"{result['rate']:g} queries a second; the model answers at once and loads in no time.",),
        )
    ]
