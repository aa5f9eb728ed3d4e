"""Renders a run's report as one HTML file."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

import jinja2

from agents.pages.charts import draw

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agents.pages.visits import RunSeries, StageLoad, Visits
    from producers.report import Report


def _tiles(report: Report) -> list[tuple[str, str]]:
    outcomes, latency = report.outcomes, report.latency_ms
    return [
        (f"{report.requests:,}", "queries"),
        (f"{report.goodput_rps:,.1f}/s", "goodput"),
        (f"{100 * report.drop_rate:.2f} %", "drop rate (late counts as dropped)"),
        (f"{100 * report.invalid_rate:.2f} %", "execution spent on lost queries"),
        (f"{latency.p50:.0f} ms" if latency.p50 is not None else "-", "median latency"),
        (f"{latency.p99:.0f} ms" if latency.p99 is not None else "-", "99th percentile"),
        (f"{outcomes.dropped:,} / {outcomes.failed:,}", "dropped / failed"),
        (f"{outcomes.missing:,} / {outcomes.duplicate:,}", "missing / duplicate"),
    ]


def render(
    report: Report,
    run: RunSeries,
    notes: list[str] | None = None,
    visits: Visits | None = None,
    loads: Mapping[str, StageLoad] | None = None,
) -> str:
    """The page's text. `notes` are sentences shown at the end, escaped; `visits` and `loads` bring more charts."""
    template = resources.files("agents.pages").joinpath("run_report.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    charts = draw(run, list(report.stages), visits, loads)
    return environment.from_string(template).render(
        report=report, tiles=_tiles(report), charts=charts, notes=notes or []
    )


def write(
    path: Path,
    report: Report,
    run: RunSeries,
    notes: list[str] | None = None,
    visits: Visits | None = None,
    loads: Mapping[str, StageLoad] | None = None,
) -> None:
    path.write_text(render(report, run, notes, visits, loads), encoding="utf-8")
