"""The same bursty workload under one policy after another, live; what came of it, side by side.

One policy's run leaves nothing for the next: its processes have ended, and its queue is drained, before that starts.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from examples.plates import payload
from spillway.agents.cli.commands.serve import ONE_THREAD_EACH
from spillway.agents.cli.metering import StageMeter
from spillway.agents.pages import comparison_page, run_report, visits
from spillway.agents.pages.comparison_page import Comparison, Curve
from spillway.agents.supervise.service import ServiceSettings, served
from spillway.lineage.errors import SpillwayError
from spillway.lineage.message import PREDICTION
from spillway.producers.client import Client
from spillway.producers.client.exchange import Exchange
from spillway.producers.load.generator import Pace, generated, run_load
from spillway.producers.load.tally import Witness
from spillway.producers.report import PREDICTION as PREDICTED
from spillway.producers.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from spillway.agents.supervise.table import Row
    from spillway.lineage.message import Outcome
    from spillway.producers.connection import ClientSettings
    from spillway.producers.load.tally import LoadResult
    from spillway.topology.load import Pipeline

HEADINGS = ("policy", "good/s", "drop rate", "dropped", "late", "wasted", "p50 ms", "p99 ms", "read right")
FOOT = "Drop rate: what got no answer in time. Wasted: the models' time that went into those queries."
WARM = 64  # queries before a measurement: first batches are slow
AT_ONCE = 64  # queries in flight while it is measured what the pipeline answers
GENTLY = 4  # and while it warms up: policies shall not begin with the memory of a queue
MEASURE = 5.0  # seconds, by the profiles: for how long what the pipeline answers is measured
GRACE = 20.0  # seconds: without drops, a queue that a burst left behind takes a while


@dataclass
class Reading(Witness):
    """How many plates were read, and how many of them right; filled in by the reply thread."""

    read: int = 0
    right: int = 0

    def observe(self, index: int, outcome: Outcome) -> None:
        """Compare one outcome with the truth."""
        super().observe(index, outcome)
        if outcome.kind == PREDICTION:
            self.read += 1
            self.right += outcome.outputs["plate"] == payload.truth(index)


@dataclass
class Run:
    """One policy's run."""

    policy: str
    report: Report
    result: LoadResult
    reading: Reading


@dataclass
class Contest:
    """Serves the pipeline under one policy at a time and puts it under load."""

    pipeline: Pipeline
    settings: ClientSettings
    work: Path
    say: Callable[[str], None]
    show: Callable[[Sequence[Row]], None]
    rate: float = 0.0  # queries per second that the pipeline answers, found out by the first run
    runs: list[Run] = field(default_factory=list)

    def run(self, policy: str, load: Callable[[float], np.ndarray], trace: str) -> Run:
        """Serve under `policy`; `load` makes the due times from what the machine can do."""
        run_dir = self.work / f"run-{policy}"
        service = ServiceSettings(
            pipeline=self.pipeline,
            cluster=self.settings,
            run_dir=run_dir,
            policy=policy,
            environment={**dict.fromkeys(ONE_THREAD_EACH, "1"), **os.environ},
        )
        with ExitStack() as stack:
            stack.enter_context(served(service, say=self.say, show=self.show))
            answer(self.pipeline, self.settings, WARM, GENTLY)
            if not self.rate:
                self.rate = capacity(self.pipeline, self.settings)
                self.say(f"this machine answers {self.rate:.0f} queries/s")
            due = load(self.rate)
            self.say(f"{policy}: replaying {trace}, {len(due)} queries in {due.max():.0f} s")
            exchange = Exchange(self.settings, self.pipeline.spec.name)
            stack.callback(exchange.close)
            meter = StageMeter(run_dir, self.pipeline.spec)
            reading = Reading()
            pace = Pace(slo=self.pipeline.spec.slo, grace=GRACE, observe=reading.observe)
            result = run_load(exchange, generated(due, payload.scene), pace)
            done = Run(policy, self._report(policy, trace, result, meter), result, reading)
        self.runs.append(done)
        return done

    def _report(self, policy: str, trace: str, result: LoadResult, meter: StageMeter) -> Report:
        stages = meter.totals()
        if stages is None:
            raise SpillwayError("a stage's metrics cannot be read: was its process killed?")
        return Report.build(
            pipeline=self.pipeline.spec.name,
            policy=policy,
            trace=trace,
            slo=self.pipeline.spec.slo,
            duration=float(np.ceil(result.due.max())),
            due=result.due,
            finished=result.finished,
            kind=result.kind,
            spent=result.spent,
            stages=stages,
            slip=result.sent - result.due,
            duplicates=result.duplicates,
        )

    def pages(self, folder: Path) -> Path:
        """Write a page for each run, and one that compares them, whose path is returned."""
        folder.mkdir(parents=True, exist_ok=True)
        for run in self.runs:
            series = visits.live_series(run.result, run.reading, self.pipeline.graph, self.pipeline.spec.slo)
            run_report.write(folder / f"{run.policy}.html", run.report, *series)
        page = Comparison(
            title=f"{self.pipeline.spec.name}: the same burst under {len(self.runs)} policies",
            subtitle=self.runs[0].report.trace,
            headings=HEADINGS,
            rows=[cells(run) for run in self.runs],
            curves=[_curve(run, self.pipeline.spec.slo) for run in self.runs],
            slo=self.pipeline.spec.slo,
            foot=[FOOT, "Each policy's own page lies beside this one."],
        )
        path = folder / "report.html"
        comparison_page.write(path, page)
        return path


def answer(pipeline: Pipeline, settings: ClientSettings, queries: int, at_once: int) -> float:
    """Let so many queries be answered, `at_once` always in flight; returns the seconds that it took."""
    inputs = [payload.scene(index, np.random.default_rng(0)) for index in range(queries)]
    with Client(pipeline.spec, settings, slo=60) as client:
        start = time.monotonic()
        for _ in client.outcomes(inputs, window=at_once):
            pass
        return time.monotonic() - start


def capacity(pipeline: Pipeline, settings: ClientSettings) -> float:
    """Queries per second that the pipeline answers when there are always some to take."""
    most = [(stage.name, stage.batching.most) for stage in pipeline.spec.stages]
    stages = [(batch, pipeline.durations[name](batch)) for name, batch in most]
    queries = max(WARM, int(MEASURE * min(batch / seconds for batch, seconds in stages)))
    return queries / answer(pipeline, settings, queries, AT_ONCE)


def cells(run: Run) -> tuple[str, ...]:
    """One run as a row of the table."""
    report, reading = run.report, run.reading
    spread = report.latency_ms
    return (
        run.policy,
        f"{report.goodput_rps:.1f}",
        f"{report.drop_rate:.1%}",
        f"{report.outcomes.dropped:,}",
        f"{report.late:,}",
        f"{report.invalid_rate:.1%}",
        "-" if spread.p50 is None else f"{spread.p50:.0f}",
        "-" if spread.p99 is None else f"{spread.p99:.0f}",
        f"{reading.right / max(1, reading.read):.1%}",
    )


def _curve(run: Run, slo: float) -> Curve:
    latency = run.result.finished - run.result.due
    predicted = run.result.kind == PREDICTED
    return Curve(run.policy, run.result.due, latency, predicted, predicted & (latency <= slo))
