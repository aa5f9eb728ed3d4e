"""A report for its reader: as text for a terminal, as JSON, into a file."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from spillway.agents.cli.columns import columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from spillway.producers.report import Report


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give a function that takes how many of `total` are done; it shows a bar on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)


FOLLOWED = 20_000  # queries whose visits a page's charts are made of, at most about twice that

_HEADINGS = ("stage", "received", "batches", "mean", "dropped", "failed", "queue ms", "wait ms", "exec ms", "busy")


EMULATED = "emulated accelerators"


def deliver(report: Report, file: Path | None, *, as_json: bool, instead: str = EMULATED) -> None:
    """Write the report into `file`, if one is named, and print it for people or for machines.

    `instead` says to people what ran in place of the models, where it was not they. Raises OSError.
    """
    if file is not None:
        file.write_text(report.to_json(), encoding="utf-8")
    click.echo(report.to_json() if as_json else summary(report, instead), nl=False)


def summary(report: Report, instead: str = EMULATED) -> str:
    spread = report.latency_ms
    latency = ", ".join(
        f"{name} {value:.1f}"
        for name, value in (("p50", spread.p50), ("p90", spread.p90), ("p99", spread.p99), ("max", spread.max))
        if value is not None
    )
    outcomes = ", ".join(f"{count} {name}" for name, count in report.outcomes.model_dump().items() if count)
    rows: list[tuple[str, ...]] = [_HEADINGS]
    for name, stage in report.stages.items():
        times = (f"{value:.2f}" for value in (stage.queue_ms, stage.wait_ms, stage.exec_ms))
        counts = (str(stage.received), str(stage.batches), f"{stage.mean_batch:.2f}", str(stage.dropped))
        rows.append((name, *counts, str(stage.failed), *times, f"{stage.busy:.1%}"))
    slip = report.schedule_slip_ms
    emulated = f", {instead}" if report.emulated else ""
    lines = [
        f"{report.pipeline}, policy {report.policy}, {report.trace}, SLO {report.slo_ms:g} ms{emulated}",
        f"requests   {report.requests} in {report.duration_s:.1f} s: {outcomes}",
        f"good       {report.good} ({report.goodput_rps:.1f}/s), late {report.late}",
        f"drop rate  {report.drop_rate:.3%} (not good), invalid rate {report.invalid_rate:.3%} (of busy time)",
        f"latency    {latency} ms" if latency else "latency    none: no query got a prediction",
        *([f"slip       p50 {slip.p50:.1f}, p99 {slip.p99:.1f}, max {slip.max:.1f} ms"] if slip.max else []),
        "",
        *columns(rows, range(1, len(_HEADINGS))),
    ]
    return "\n".join(lines) + "\n"
