"""`make demo`: four trained models on a real Kafka answer a bursty workload that overloads them for part of the time.

Trains on the first run, starts a broker of its own, serves the pipeline, finds out what this machine can do, replays
traces/bursty.csv scaled to that, shows a live table, and leaves a summary and an HTML report. Everything it started
ends with it, also on Ctrl-C.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.live import Live

from agents.broker import EmbeddedBroker
from agents.cli.metering import StageMeter
from agents.cli.summary import summary
from agents.pages import run_report
from agents.pages.charts import RunSeries
from agents.supervise.service import ServiceSettings, served
from agents.supervise.table import table
from examples.plates import payload
from examples.plates.training import ensure_trained
from lineage.errors import SpillwayError
from lineage.message import PREDICTION
from producers import report as outcomes
from producers.client import Client
from producers.client.exchange import Exchange
from producers.connection import ClientSettings
from producers.load import generated, traces
from producers.load.generator import Pace, run_load
from producers.report import Report
from topology.load import Pipeline, load

if TYPE_CHECKING:
    from producers.load.tally import LoadResult
    from producers.report import StageTotals

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "traces" / "bursty.csv"
REPORT = ROOT / ".spillway" / "demo" / "report.html"
CALM_SHARE = 0.45  # of what the machine can do; the trace's bursts are up to four times as high
CALM_RATE = 100.0  # of the trace between bursts
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass
class Reading:
    """How many plates were read, and how many of them right; filled in by the reply thread."""

    read: int = 0
    right: int = 0
    lost_at: dict[int, str] = field(default_factory=dict)

    def observe(self, index: int, outcome: object) -> None:
        """Compare one outcome with the truth."""
        if outcome.kind == PREDICTION:
            self.read += 1
            self.right += outcome.outputs["plate"] == payload.truth(index)
        else:
            self.lost_at[index] = outcome.stage


def capacity(pipeline: Pipeline, settings: ClientSettings, queries: int = 1500) -> float:
    """Queries per second that the pipeline answers when 64 are always in flight."""
    inputs = [payload.scene(index, np.random.default_rng(0)) for index in range(queries)]
    with Client(pipeline.spec, settings, slo=60) as client:
        for _ in client.outcomes(inputs[:200], window=64):
            pass  # warm: first batches are slow
        start = time.monotonic()
        for _ in client.outcomes(inputs, window=64):
            pass
    return queries / (time.monotonic() - start)


def run(console: Console, stack: ExitStack) -> tuple[Report, LoadResult, Reading]:
    """Train, start, measure, replay."""
    console.print("[bold]Spillway[/]: four models read licence plates made of real handwritten digits\n")
    began = time.monotonic()
    ensure_trained(lambda text: console.print(f"  training {text}"))
    console.print(f"models ready after {time.monotonic() - began:.1f} s")
    payload.held_out()

    work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-demo-")))
    broker = stack.enter_context(EmbeddedBroker(work / "kafka", notice=console.print))
    console.print(f"Apache Kafka ready at {broker.bootstrap} after {broker.start_seconds:.1f} s")
    pipeline = load(ROOT / "examples" / "plates" / "pipeline.yaml")
    settings = ClientSettings(bootstrap=broker.bootstrap)
    live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
    if live is not None:
        stack.enter_context(live)

    def show(rows: object) -> None:
        if live is not None:
            live.update(table(rows, "plates"), refresh=True)

    service = ServiceSettings(
        pipeline=pipeline,
        cluster=settings,
        run_dir=work / "run",
        policy="expired",
        environment={**ONE_THREAD, **os.environ},
    )
    stack.enter_context(served(service, say=lambda text: console.print(text, markup=False), show=show))
    rate = capacity(pipeline, settings)
    scale = CALM_SHARE * rate / CALM_RATE
    console.print(f"this machine answers {rate:.0f} queries/s; replaying {TRACE.name} at {scale:.2f} of its rates")
    due = traces.arrivals(str(TRACE), seed=1, scale=scale)
    reading = Reading()
    exchange = Exchange(settings, pipeline.spec.name)
    stack.callback(exchange.close)
    meter = StageMeter(work / "run", pipeline.spec)
    result = run_load(exchange, generated(due, payload.scene), Pace(slo=pipeline.spec.slo, observe=reading.observe))
    return judge(pipeline, scale, result, meter.totals()), result, reading


def judge(pipeline: Pipeline, scale: float, result: LoadResult, stages: dict[str, StageTotals] | None) -> Report:
    """The run's report."""
    if stages is None:
        raise SpillwayError("a stage's metrics cannot be read: was its process killed?")
    return Report.build(
        pipeline=pipeline.spec.name,
        policy="expired",
        trace=f"{TRACE.name} x {scale:.2f}",
        slo=pipeline.spec.slo,
        duration=float(np.ceil(result.due.max())),
        due=result.due,
        finished=result.finished,
        kind=result.kind,
        spent=result.spent,
        stages=stages,
        slip=result.sent - result.due,
        duplicates=result.duplicates,
    )


def main() -> int:
    """Run the demo; 0 if all went well."""
    console = Console(highlight=False)
    try:
        with ExitStack() as stack:
            report, result, reading = run(console, stack)
    except SpillwayError as error:
        console.print(f"error: {error}", markup=False, style="red")
        return error.exit_code
    except KeyboardInterrupt:
        console.print("interrupted; everything that was started has ended")
        return 130
    accuracy = f"{reading.right} of {reading.read} plates read right ({reading.right / max(1, reading.read):.1%})"
    series = RunSeries(
        result.due,
        result.finished - result.due,
        result.kind == outcomes.PREDICTION,
        [reading.lost_at.get(index, "") for index in range(len(result.due))],
        report.slo_ms / 1e3,
    )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    run_report.write(REPORT, report, series, [f"{accuracy}, on digits that no model was trained on."])
    print(f"\n{summary(report)}")
    print(f"accuracy   {accuracy}, on digits that no model was trained on")
    print(f"report     {REPORT}")
    return 0 if report.outcomes.missing == 0 and report.outcomes.duplicate == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
