"""Clipper's serving layer in view (section 3.4 of Crankshaw's thesis); `spillway demo clipper` runs this.

1. What one worker answers in a second under four batch limits, where a batch may take 20 ms: at the front, without
   Kafka.
2. A stage with three worker processes under load, served on Kafka: one is killed (SIGKILL), one stopped (SIGSTOP). No
   query is lost or answered twice.
3. The same stage on a stream in which few queries are asked for often (Zipf), without a cache and with one.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import psutil
from rich.table import Table

from examples.clipper import training
from examples.clipper.front import FrontRun, saturate
from examples.terminal import shown
from spillway.agents.broker import EmbeddedBroker
from spillway.agents.cli.main import end
from spillway.agents.cli.options import cache_dir
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.loading import load_model
from spillway.agents.pages import page
from spillway.agents.supervise.service import ServiceSettings, served
from spillway.lineage.message import PREDICTION
from spillway.producers.client.exchange import Exchange
from spillway.producers.connection import ClientSettings
from spillway.producers.load.generator import Pace, generated, run_load
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from matplotlib.axes import Axes
    from rich.console import Console

    from spillway.producers.load.tally import LoadResult

OBJECTIVE: Final = 0.02  # seconds that a batch may take
LIMITS: Final = {"none": ("fixed", 1), "fixed": ("fixed", 32), "aimd": ("aimd", 4_096), "quantile": ("quantile", 4_096)}
EACH: Final = 2.0  # seconds that a limit is measured for
RATE, SECONDS, KILL_AT, STOP_AT = 200.0, 14.0, 3.0, 7.0
ZIPF, ZIPF_RATE, ZIPF_SECONDS = 1.1, 300.0, 6.0
WITHIN: Final = 60.0
FOLDER: Final = Path(__file__).parents[2] / ".spillway" / "demo" / "clipper"
PAGE: Final = FOLDER / "report.html"
SAID: Final = (
    "A batch grows until it takes 20 ms, so one worker answers many times what it would one by one; a worker that is "
    "killed costs its batch's queries a moment, one that hangs costs them its timeout of 2 s, and every query is "
    "answered once; with a cache most queries of a skewed stream never reach a worker."
)

SPEC: Final = """
name: {name}
slo: 1s
partitions: 4
stages:
  - name: read
    model: "sklearn:kernel.skops"
    workers: {{count: 3, where: process, timeout: 2s}}
    batching: {{limit: aimd, objective: 20ms}}
{more}
"""


@dataclass(slots=True)
class Served:
    """A load on the served stage. Latencies in ms, from when a query was due."""

    result: LoadResult
    events: list[tuple[float, str]]

    @property
    def latencies(self) -> np.ndarray[Any, Any]:
        return 1e3 * (self.result.finished - self.result.due)

    @property
    def missing(self) -> int:
        return int(np.isnan(self.result.finished).sum())


def batch_limits(console: Console) -> dict[str, dict[str, FrontRun]]:
    """Each model under each limit, at the front."""
    batch = [Inputs(query, {}, "") for query in training.queries()]
    found: dict[str, dict[str, FrontRun]] = {}
    table = Table("model", "limit", box=None, pad_edge=False)
    for heading in ("queries/s", "times none", "batch", "full batches beyond 20 ms"):
        table.add_column(heading, justify="right")
    for name, reference in training.MODELS.items():
        model = load_model("read", reference, {})
        model.predict(batch[:64])  # a first call takes longer
        runs = found[name] = {}
        for limit, (kind, most) in LIMITS.items():
            run = runs[limit] = saturate(model.predict, batch, EACH, limit=kind, most=most, objective=OBJECTIVE)
            gain = run.throughput / runs["none"].throughput
            beyond = f"{100 * run.beyond(OBJECTIVE, EACH / 2):.0f} %"
            size = f"{run.typical_size:.0f}"
            table.add_row(name if limit == "none" else "", limit, f"{run.throughput:,.0f}", f"{gain:.1f}", size, beyond)
    console.print(table)
    return found


class Blows(threading.Thread):
    """Kills one worker of the stage and stops another, by the clock."""

    def __init__(self, console: Console) -> None:
        super().__init__(daemon=True)
        self.events: list[tuple[float, str]] = []
        self._console = console
        self._began = time.monotonic() + 1.0  # a load begins a second after it is asked for

    def run(self) -> None:
        for at, how in ((KILL_AT, signal.SIGKILL), (STOP_AT, signal.SIGSTOP)):
            time.sleep(max(0.0, self._began + at - time.monotonic()))
            workers = [each for each in psutil.Process().children(recursive=True) if _is_worker(each)]
            if workers:
                os.kill(workers[0].pid, how)
                self.events.append((time.monotonic() - self._began, how.name))
                self._console.print(f"  {at:4.1f} s  [bold red]{how.name}[/] to worker process {workers[0].pid}")


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "spillway.agents.workers.local" in process.cmdline() and process.status() != psutil.STATUS_STOPPED
    except psutil.Error:
        return False


def serve(
    console: Console, settings: ClientSettings, name: str, more: str, due: np.ndarray[Any, Any], asks: Any
) -> Served:
    """Serve the stage under `name`, and ask `asks(index)` at each of the times `due`."""
    file = FOLDER / f"{name}.yaml"
    file.write_text(SPEC.format(name=name, more=more), encoding="utf-8")
    pipeline = load(file)

    def say(text: str) -> None:
        console.print(f"  {text}", markup=False, style="dim")

    with (
        tempfile.TemporaryDirectory(prefix="spillway-clipper-") as work,
        served(ServiceSettings(pipeline, settings, Path(work) / "run"), say=say),
    ):
        exchange = Exchange(settings, name, linger=0.001)
        blows = Blows(console)
        if "cache" not in name:
            blows.start()
        try:
            result = run_load(exchange, generated(due, asks), Pace(slo=WITHIN, grace=WITHIN))
        finally:
            exchange.close()
    return Served(result, blows.events)


def run(console: Console, stack: ExitStack) -> bool:
    """Train, measure, serve, show; whether all was as promised."""
    training.train(FOLDER)
    os.chdir(FOLDER)  # models that are files are found there
    console.print(f"[bold]1. Batch limits[/]: one worker at the front, batches of at most {1e3 * OBJECTIVE:.0f} ms\n")
    found = batch_limits(console)
    work = stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-clipper-"))
    broker = stack.enter_context(EmbeddedBroker(Path(work) / "kafka", cache_dir=cache_dir(), notice=console.print))
    settings = ClientSettings(bootstrap=broker.bootstrap)
    questions = training.queries()

    console.print(f"\n[bold]2. Workers[/]: three processes at {RATE:g} queries a second; one is killed, one stopped\n")
    due = np.arange(0.0, SECONDS, 1 / RATE)
    blown = serve(console, settings, "digits", "", due, lambda index, _: questions[index % len(questions)])

    console.print(
        f"\n[bold]3. Cache[/]: {ZIPF_RATE:g} queries a second, {len(questions)} different ones, Zipf {ZIPF}\n"
    )
    chance = np.random.default_rng(0)
    asked = (chance.zipf(ZIPF, int(ZIPF_RATE * ZIPF_SECONDS)) - 1) % len(questions)
    due = np.arange(0.0, ZIPF_SECONDS, 1 / ZIPF_RATE)
    streams = {}
    for name, more in (("off", ""), ("on", "    cache: {bytes: 1MB}")):
        streams[name] = serve(console, settings, f"cache-{name}", more, due, lambda index, _: questions[asked[index]])

    rows = told(blown, streams)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for row in rows:
        table.add_row(*row)
    console.print()
    console.print(table)
    write_page(found, blown, streams, rows)
    console.print(f"page  {PAGE}", soft_wrap=True)
    loads = [blown, *streams.values()]
    return all(load.missing == 0 == load.result.duplicates for load in loads) and len(blown.events) == 2


def told(blown: Served, streams: dict[str, Served]) -> list[tuple[str, str]]:
    rows = [
        (f"queries to three workers, at {RATE:g} a second", f"{len(blown.result.due):,}"),
        ("without an outcome, answered twice", f"{blown.missing}, {blown.result.duplicates}"),
        ("not a prediction", f"{int((blown.result.kind != PREDICTION).sum())}"),
        ("latency, median and 99th percentile", _percentiles(blown)),
    ]
    for name, stream in streams.items():
        evaluated = stream.result.stage_totals(["read"], {"read": 3})["read"].busy
        rows.append((f"cache {name}: latency, median and 99th percentile", _percentiles(stream)))
        rows.append((f"cache {name}: seconds of evaluation", f"{evaluated:.2f}"))
    return rows


def _percentiles(load: Served) -> str:
    return "{:.1f}, {:.0f} ms".format(*np.nanpercentile(load.latencies, (50, 99)))


def write_page(
    found: dict[str, dict[str, FrontRun]], blown: Served, streams: dict[str, Served], rows: list[tuple[str, str]]
) -> None:
    charts: dict[str, Callable[[Axes], None]] = {
        "Queries a second of one worker, by batch limit": lambda axes: _bars(axes, found),
        "Batch sizes under aimd, from the start of its run at the front": lambda axes: _sizes(axes, found),
        "Latency by the time when a query was due, on Kafka": lambda axes: _blows(axes, blown),
        "Latencies with a cache and without": lambda axes: _streams(axes, streams),
    }
    page.write(PAGE, "Clipper: batches, workers, cache", charts, rows, text=SAID)


def _bars(axes: Axes, found: dict[str, dict[str, FrontRun]]) -> None:
    for number, limit in enumerate(LIMITS):
        places = [place + 0.2 * number for place in range(len(found))]
        axes.bar(places, [runs[limit].throughput for runs in found.values()], 0.18, label=limit)
    axes.set_xticks([place + 0.3 for place in range(len(found))], list(found), fontsize=7)
    axes.set_yscale("log")
    axes.set_ylabel("queries/s")
    axes.legend(fontsize=7)


def _sizes(axes: Axes, found: dict[str, dict[str, FrontRun]]) -> None:
    for name, runs in found.items():
        axes.plot(runs["aimd"].ended, runs["aimd"].sizes, lw=1, label=name)
    axes.set_yscale("log")
    axes.set_xlabel("s")
    axes.set_ylabel("queries a batch")
    axes.legend(fontsize=7)


def _blows(axes: Axes, blown: Served) -> None:
    axes.plot(blown.result.due, blown.latencies, ".", ms=2)
    axes.set_yscale("log")
    axes.set_xlabel("s")
    axes.set_ylabel("ms")
    page.mark_moments(axes, blown.events)


def _streams(axes: Axes, streams: dict[str, Served]) -> None:
    for name, stream in streams.items():
        found = np.sort(stream.latencies[~np.isnan(stream.latencies)])
        axes.plot(found, np.linspace(0, 100, len(found)), label=f"cache {name}")
    axes.set_xscale("log")
    axes.set_xlabel("ms")
    axes.set_ylabel("% of queries")
    axes.legend(fontsize=7)


def main() -> int:
    return shown("batches that find their size, workers that die, predictions remembered", run)


if __name__ == "__main__":
    end(main())
