"""How soon a killed replica's queries are answered again, with a standby and without.

A stage of two replicas answers queries at a steady rate. A replica is killed with SIGKILL; what counts is the time from
the kill to the first outcome, at the client, of a query on one of its partitions that another process has computed. So
it has in it the discovery of the death, the takeover, the compute and the gate. The model answers with its process's id
and loads in no time, which flatters a restart: a restarted replica loads its model first, a standby has done so before.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
import yaml

from spillway.agents.broker import EmbeddedBroker
from spillway.agents.cli.commands.serve import ONE_THREAD_EACH
from spillway.agents.cli.options import bootstrap_option, cache_dir, client_config_option, json_option
from spillway.agents.supervise.registry import Entry, entries
from spillway.agents.supervise.service import ServiceSettings, served
from spillway.lineage.errors import SpillwayError
from spillway.lineage.keys import partition_for
from spillway.lineage.message import PREDICTION
from spillway.producers.client import Client
from spillway.producers.client.exchange import ClientClosedError
from spillway.producers.connection import ClientSettings
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from types import TracebackType

    from spillway.lineage.message import Outcome

PAPER_SECONDS = 0.320  # HAMS, table of recoveries: a stateless stage with a standby, discovery included
_STAGE, _PARTITIONS, _SLO = "reply", 12, 30.0
MOST_KILLS = 8  # of one replica or the other within a minute, before its supervisor gives it up
_WARM, _LONGEST, _POLL = 3.0, 60.0, 0.02


class Witness:
    """The model: it says which process has computed an answer."""

    def predict(self, batch: list[Any]) -> list[dict[str, int]]:
        return [{"pid": os.getpid()} for _ in batch]


@dataclass(frozen=True, slots=True)
class Answer:
    """One outcome. Times on the monotonic clock."""

    partition: int
    sent: float
    at: float
    pid: int  # 0: no prediction


class Traffic:
    """Queries at a steady rate while the context is open, and their outcomes."""

    def __init__(self, client: Client, rate: float) -> None:
        self.answers: list[Answer] = []
        self.accepted: list[str] = []  # request ids
        self._client, self._rate = client, rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(max(0.0, began + len(self.accepted) / self._rate - time.monotonic())):
            key = f"query-{len(self.accepted)}"
            sent = time.monotonic()
            future = self._client.submit({}, request_id=key, key=key)
            self.accepted.append(key)
            future.add_done_callback(self._noter(partition_for(key.encode(), _PARTITIONS), sent))

    def _noter(self, partition: int, sent: float) -> Callable[[Future[Outcome]], None]:
        def note(future: Future[Outcome]) -> None:
            if isinstance(future.exception(), ClientClosedError):
                return  # the measurement was over before its outcome came
            outcome = future.result()
            pid = int(outcome.outputs["pid"]) if outcome.kind == PREDICTION else 0
            self.answers.append(Answer(partition, sent, time.monotonic(), pid))

        return note

    def partitions_of(self, pid: int, since: float) -> frozenset[int]:
        return frozenset(answer.partition for answer in self.answers if answer.pid == pid and answer.at >= since)


@dataclass(frozen=True, slots=True)
class Kill:
    """What one kill came to, in seconds."""

    first: float  # to the first outcome of the dead one's partitions from another process
    longest: float  # that a query on those partitions took, of those under way or sent until then


@click.command()
@bootstrap_option
@client_config_option
@click.option("--kills", type=click.IntRange(1, MOST_KILLS), default=5, show_default=True, help="Of each variant.")
@click.option("--repeats", type=click.IntRange(1), default=1, show_default=True, help="Of everything, interleaved.")
@click.option("--rate", type=click.FloatRange(1), default=50.0, show_default=True, help="Queries/s.")
@json_option
def standby(
    bootstrap: str | None, client_config: Path | None, kills: int, repeats: int, rate: float, *, as_json: bool
) -> None:
    """Kill replicas of a stateless stage, with and without a standby.

    Uses a Kafka of its own unless --bootstrap names one.

    \b
    Example: python -m benchmarks standby --kills 5
    """  # noqa: D301 - click's own marks
    found: dict[int, list[Kill]] = {1: [], 0: []}
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-standby-")))
        if bootstrap is None:
            bootstrap = stack.enter_context(EmbeddedBroker(work / "kafka", cache_dir=cache_dir())).bootstrap
        settings = ClientSettings.load(bootstrap, client_config)
        for repeat in range(repeats):
            for standbys in found:
                name = f"bench-standby-{standbys}-{repeat}"
                found[standbys] += measure(settings, work, name, standbys, kills, rate)
    rows = [row(standbys, results) for standbys, results in found.items()]
    click.echo(json.dumps(rows, indent=2) if as_json else "\n".join(map(_line, rows)))


def measure(settings: ClientSettings, work: Path, name: str, standbys: int, kills: int, rate: float) -> list[Kill]:
    """Serve a stage of two replicas under load and kill them in turn."""
    file = work / f"{name}.yaml"
    stage = {"name": _STAGE, "model": "benchmarks.standby:Witness", "workers": {"fronts": 2, "standby": standbys}}
    file.write_text(yaml.safe_dump({"name": name, "slo": _SLO, "partitions": _PARTITIONS, "stages": [stage]}))
    environment = {**dict.fromkeys(ONE_THREAD_EACH, "1"), **os.environ}
    service = ServiceSettings(load(file), settings, work / "run", environment=environment)
    with (
        served(service, say=lambda _text: None),
        Client(name, settings, slo=_SLO) as client,
        Traffic(client, rate) as traffic,
    ):
        return [_kill(work / "run", name, kill % 2, 2 + standbys, traffic) for kill in range(kills)]


def _kill(run_dir: Path, name: str, replica: int, whole: int, traffic: Traffic) -> Kill:
    _until(lambda: len(list(_ready(run_dir, name))) == whole, f"{name}: all processes ready")
    since = time.monotonic()
    time.sleep(_WARM)
    victim = next(entry for entry in _ready(run_dir, name) if entry.role == "stage" and entry.replica == replica)
    mine = traffic.partitions_of(victim.pid, since)
    at = time.monotonic()
    os.kill(victim.pid, signal.SIGKILL)

    def after() -> list[Answer]:
        known = list(traffic.answers)
        return [a for a in known if a.at > at and a.partition in mine and a.pid not in {0, victim.pid}]

    _until(lambda: bool(after()), f"{name}: an outcome of the killed replica's partitions")
    first = min(answer.at for answer in after())
    _until(lambda: any(a.sent > first for a in after()), f"{name}: an outcome of a query sent since")
    return Kill(first - at, max(answer.at - answer.sent for answer in after()))


def _ready(run_dir: Path, name: str) -> Iterator[Entry]:
    return (e for e in entries(run_dir, name) if e.stage == _STAGE and e.ready and e.alive())


def _until(condition: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + _LONGEST
    while not condition():
        if time.monotonic() > give_up:
            raise SpillwayError(f"{what}: not within {_LONGEST:g} s")
        time.sleep(_POLL)


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


def _line(row: dict[str, Any]) -> str:
    what = "with a standby" if row["standbys"] else "without"
    paper = f" (paper: {row['paper_ms']:.0f})" if row["paper_ms"] else ""
    return (
        f"{what:15} first outcome after {row['first_p50_ms']:.0f} ms, {min(row['first_ms']):.0f} to "
        f"{max(row['first_ms']):.0f} over {row['kills']} kills{paper}; longest query {row['longest_query_ms']:.0f} ms"
    )


if __name__ == "__main__":
    standby()
