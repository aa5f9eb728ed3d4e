"""Kill the primary of a stage that learns while it is under load; `spillway demo hams` runs this.

A bandit learns from rewards at a steady rate. Halfway its primary is killed with SIGKILL. Twice a second the answers
and the state of both members are shown. At the end a table and an HTML page say how long nobody answered, that every
query got exactly one outcome, and that the state has learned from every reward exactly once.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from examples.stateful.payload import offer
from examples.terminal import shown
from spillway.agents.broker import EmbeddedBroker
from spillway.agents.cli.main import end
from spillway.agents.cli.options import cache_dir
from spillway.agents.live.operator.histories import kept_version, read_histories
from spillway.agents.live.operator.stored import Store
from spillway.agents.pages import page
from spillway.agents.supervise.scrape import BACKUP, PRIMARY, members
from spillway.agents.supervise.service import ServiceSettings, served
from spillway.lineage.errors import SpillwayError
from spillway.lineage.values.replication import ReplicationDecoder
from spillway.producers.client.exchange import Exchange
from spillway.producers.connection import ClientSettings
from spillway.producers.load.generator import Pace, generated, run_load
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from matplotlib.axes import Axes
    from rich.console import Console

    from spillway.lineage.message import Outcome
    from spillway.producers.load.tally import LoadResult
    from spillway.topology.load import Pipeline

STAGE = "bandit"
RATE, SECONDS, KILLED_AT = 50.0, 16.0, 8.0
WITHIN = 60.0
SHOWN_EVERY = 0.5
BIN = 0.1  # seconds of one bar
SAID = (
    "The primary is killed, and its backup has the newest state: answers stop while it takes over and go on from the "
    "next version, so that no query is lost and no reward counts twice."
)
PAGE = Path(__file__).parents[2] / ".spillway" / "demo" / "hams" / "report.html"


class Watcher:
    """Says how things stand while the load runs, and kills the primary."""

    def __init__(self, console: Console, run_dir: Path, pipeline: str) -> None:
        self.console = console
        self.killed_at = 0.0  # monotonic
        self.versions: dict[str, list[tuple[float, float]]] = {}  # by member: when it was asked, the version it has
        self._run_dir = run_dir
        self._pipeline = pipeline
        self._answers = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._show), threading.Thread(target=self._kill)]
        self.began = time.monotonic() + 1.0  # a load begins a second after it is asked for

    def observe(self, _index: int, _outcome: Outcome) -> None:
        self._answers += 1

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _kill(self) -> None:
        if self._stop.wait(self.began + KILLED_AT - time.monotonic()):
            return
        while (found := members(self._run_dir, self._pipeline, STAGE).get(PRIMARY)) is None:
            if self._stop.wait(0.1):
                return
        entry, _ = found
        self.killed_at = time.monotonic()
        os.kill(entry.pid, signal.SIGKILL)
        self.console.print(f"[bold red]SIGKILL[/] to {entry.name}, process {entry.pid}")

    def _show(self) -> None:
        before = 0
        while not self._stop.wait(SHOWN_EVERY):
            now, count = time.monotonic() - self.began, self._answers
            status = []
            for role, (entry, seen) in sorted(members(self._run_dir, self._pipeline, STAGE).items()):
                epoch, version = seen.value("spillway_state_epoch"), seen.value("spillway_state_version")
                status.append(f"{entry.name} {role} e{epoch:.0f}.v{version:.0f}")
                self.versions.setdefault(entry.name, []).append((now, version))
            if now > 0:
                self.console.print(f"{now:5.1f} s  {count - before:3d} answers   {'   '.join(status)}")
            before = count


def whole(run_dir: Path, pipeline: str) -> None:
    """Wait until there is a primary with a backup."""
    until = time.monotonic() + WITHIN
    while time.monotonic() < until:
        if {PRIMARY, BACKUP} <= members(run_dir, pipeline, STAGE).keys():
            return
        time.sleep(0.1)
    raise SpillwayError(f"there was no primary with a backup for {WITHIN:g} s; see the logs in {run_dir}")


def learned(settings: ClientSettings, pipeline: Pipeline) -> tuple[int, str]:
    """How many rewards the newest durable state has learned from, and which version that is."""
    histories = read_histories(settings, pipeline.spec)
    kept = kept_version(histories, (STAGE, 0), None)
    store = Store(settings, pipeline.spec.name, (STAGE, 0))
    state, _ = store.state(store.contents(kept.manifest, ReplicationDecoder()))
    return int(state["shown"].sum()), str(kept.version)


def run(console: Console, stack: ExitStack) -> bool:
    """Serve, load, kill, judge; whether all was as promised."""
    pipeline = load(Path(__file__).parent / "bandit.yaml")
    work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-failover-")))
    broker = stack.enter_context(EmbeddedBroker(work / "kafka", cache_dir=cache_dir(), notice=console.print))
    settings = ClientSettings(bootstrap=broker.bootstrap)
    name, run_dir = pipeline.spec.name, work / "run"

    def say(text: str) -> None:
        console.print(f"  {text}", markup=False, style="dim")

    with served(ServiceSettings(pipeline, settings, run_dir), say=say):
        whole(run_dir, name)
        exchange = Exchange(settings, name, linger=0.001)
        watcher = Watcher(console, run_dir, name)
        watcher.start()
        try:
            due = np.arange(0.0, SECONDS, 1 / RATE)
            pace = Pace(slo=WITHIN, grace=WITHIN, observe=watcher.observe)
            result = run_load(exchange, generated(due, offer), pace)
        finally:
            watcher.stop()
            exchange.close()
        rewards = sum("reward" in offer(index) for index in range(len(due)))
        rows, good = judge(result, rewards, learned(settings, pipeline), watcher)
    show(console, rows)
    write_page(result, watcher, rows)
    console.print(f"page  {PAGE}", soft_wrap=True)
    return good


def silences(finished: np.ndarray, killed: float) -> tuple[float, float]:
    """The longest time without an outcome that was there within a second after the kill, and the longest other."""
    gaps = np.diff(finished)
    after = (finished[1:] >= killed) & (finished[:-1] <= killed + 1.0)
    return float(gaps[after].max(initial=0.0)), float(gaps[~after].max(initial=0.0))


def judge(
    result: LoadResult, rewards: int, told: tuple[int, str], watcher: Watcher
) -> tuple[list[tuple[str, str]], bool]:
    """What came of it as rows of a table, and whether all was as promised."""
    finished: Any = np.sort(result.finished)
    missing = int(np.isnan(finished).sum())
    gap, other = silences(finished[~np.isnan(finished)], watcher.killed_at - watcher.began)
    latency = 1e3 * (result.finished - result.due)
    count, version = told
    rows = [
        (f"time without an answer after the kill at {KILLED_AT:g} s", f"{1e3 * gap:.0f} ms"),
        ("longest time without an answer otherwise", f"{1e3 * other:.0f} ms"),
        (f"queries, at {RATE:g} a second", f"{len(finished)}"),
        ("queries without an outcome", f"{missing}"),
        ("outcomes too many", f"{result.duplicates}"),
        ("latency, median", f"{np.nanmedian(latency):.1f} ms"),
        ("latency, longest", f"{np.nanmax(latency):.0f} ms"),
        ("rewards told", f"{rewards}"),
        ("rewards that the newest durable state has learned from", f"{count}"),
        ("version of that state", version),
    ]
    return rows, missing == 0 == result.duplicates and rewards == count and watcher.killed_at > 0


def show(console: Console, rows: list[tuple[str, str]]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for row in rows:
        table.add_row(*row)
    console.print()
    console.print(table)


def write_page(result: LoadResult, watcher: Watcher, rows: list[tuple[str, str]]) -> None:
    killed = [(watcher.killed_at - watcher.began, "SIGKILL to the primary")]
    charts: dict[str, Callable[[Axes], None]] = {
        "Latency by the time when a query was due": lambda axes: _latencies(axes, result, killed),
        f"Answers in each {1e3 * BIN:.0f} ms": lambda axes: _answers(axes, result, killed),
        "Version of the state in each member": lambda axes: _versions(axes, watcher, killed),
    }
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    page.write(PAGE, "HAMS: a stage that learns loses its primary", charts, rows, text=SAID)


def _latencies(axes: Axes, result: LoadResult, killed: list[tuple[float, str]]) -> None:
    axes.plot(result.due, 1e3 * (result.finished - result.due), ".", ms=2)
    axes.set(xlabel="s", ylabel="ms", yscale="log")
    page.mark_moments(axes, killed)


def _answers(axes: Axes, result: LoadResult, killed: list[tuple[float, str]]) -> None:
    finished = result.finished[~np.isnan(result.finished)]
    counts, edges = np.histogram(finished, np.arange(0.0, SECONDS + BIN, BIN))
    axes.stairs(counts, edges, fill=True, alpha=0.6)
    axes.set(xlabel="s", ylabel="answers")
    page.mark_moments(axes, killed)


def _versions(axes: Axes, watcher: Watcher, killed: list[tuple[float, str]]) -> None:
    for name, points in sorted(watcher.versions.items()):
        axes.plot(*np.transpose(points), ".-", ms=4, lw=0.8, label=name)
    axes.set(xlabel="s", ylabel="version")
    axes.legend(frameon=False, fontsize=7, loc="lower right")
    page.mark_moments(axes, killed)


def main() -> int:
    return shown("a stage that learns loses its primary", run)


if __name__ == "__main__":
    end(main())
