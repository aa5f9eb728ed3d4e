"""Four trained models on a real Kafka answer a bursty workload that overloads them for part of the time.

Trains on the first run, measures the models' durations, starts a broker of its own, and for each policy serves the
pipeline and replays traces/bursty.csv, scaled to what this machine was measured to answer, with a live table; it ends
in one table of all policies and an HTML report. Everything it started ends with it, also on Ctrl-C.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.live import Live
from rich.table import Table

from examples.plates.contest import FOOT, HEADINGS, Contest, cells
from examples.plates.profiling import profiled
from examples.plates.training import ensure_trained
from examples.terminal import shown
from spillway.agents.broker import EmbeddedBroker
from spillway.agents.supervise.table import table
from spillway.producers.connection import ClientSettings
from spillway.producers.load import traces

if TYPE_CHECKING:
    from contextlib import ExitStack

    import numpy as np
    from rich.console import Console

POLICIES = ("naive", "pard", "spillway")  # shown in this order
ROOT = Path(__file__).parents[2]
TRACE = ROOT / "traces" / "bursty.csv"
REPORTS = ROOT / ".spillway" / "demo" / "pard"
CALM_SHARE = 0.5  # of what the pipeline answers here; the trace's two bursts are 3.2 and 4 times as high
SECONDS = 24.0  # of the trace: two of its bursts
CALM_RATE = 100.0  # of the trace between bursts


def due_times(rate: float) -> np.ndarray:
    """The trace, scaled to a machine that answers `rate` queries per second: the same for every policy."""
    return traces.arrivals(str(TRACE), seed=1, scale=CALM_SHARE * rate / CALM_RATE, duration=SECONDS)


def contest_of(console: Console, stack: ExitStack) -> Contest:
    """Train, start, and let every policy show what it does."""
    began = time.monotonic()
    ensure_trained(lambda text: console.print(f"  training {text}"))
    console.print(f"models ready after {time.monotonic() - began:.1f} s")
    began = time.monotonic()
    pipeline = profiled(REPORTS)
    each = ", ".join(f"{name} {1000 * took(1):.1f}" for name, took in pipeline.durations.items())
    console.print(f"measured in {time.monotonic() - began:.1f} s; ms for one query: {each}")

    work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-demo-")))
    broker = stack.enter_context(EmbeddedBroker(work / "kafka", notice=console.print))
    console.print(f"Apache Kafka ready at {broker.bootstrap} after {broker.start_seconds:.1f} s")
    live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
    if live is not None:
        stack.enter_context(live)

    def show(rows: object) -> None:
        if live is not None:
            live.update(table(rows, "plates"), refresh=True)

    contest = Contest(
        pipeline=pipeline,
        settings=ClientSettings(bootstrap=broker.bootstrap),
        work=work,
        say=lambda text: console.print(text, markup=False),
        show=show,
    )
    for policy in POLICIES:
        contest.run(policy, due_times, TRACE.name)
    return contest


def summary(contest: Contest) -> Table:
    """One row for each policy."""
    slo = 1000 * contest.pipeline.spec.slo
    title = f"{TRACE.name}, the first {SECONDS:g} s, SLO {slo:g} ms"
    made = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, heading in enumerate(HEADINGS):
        made.add_column(heading, justify="right" if number else "left")
    for each in contest.runs:
        made.add_row(*cells(each))
    return made


def run(console: Console, stack: ExitStack) -> bool:
    """Have all policies compared, and show how they did; whether every query had one outcome."""
    contest = contest_of(console, stack)
    console.print()
    console.print(summary(contest))
    console.print(FOOT)
    console.print("Plates are of digits that no model was trained on.")
    console.print(f"report  {contest.pages(REPORTS)}", soft_wrap=True)
    return all(each.report.outcomes.missing == each.report.outcomes.duplicate == 0 for each in contest.runs)


def main() -> int:
    return shown("four models read licence plates made of real handwritten digits", run)
