"""Renders a run's report as one HTML file."""

from __future__ import annotations

import io
from importlib import resources
from typing import TYPE_CHECKING, Final

import jinja2
import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from spillway.agents.pages.visits import RunSeries, between

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from spillway.agents.pages.visits import StageLoad, Visits
    from spillway.producers.report import Report


# The charts of a run, as SVG text: arrivals and goodput, drop rate, latency, its distribution, drops per stage.
#
# Where the visits to stages are known, two more: time lines of single queries, and the budget that each stage took;
# where the policies' synchronisations are, how loaded each stage was.

mpl.use("svg")  # no display is needed, nor looked for

QUEUE, WAIT, EXECUTE, OVER = "#b3392f", "#d98e04", "#2a7f62", "#b3392f"
HOPS: Final = "#9a9a9a"
_PARTS: Final = (("queued", QUEUE, "queue"), ("waited", WAIT, "batch wait"), ("executed", EXECUTE, "execute"))
_SHADES: Final = plt.get_cmap("viridis")
_WINDOWS: Final = 60


def examples(run: RunSeries, visits: Visits) -> list[tuple[str, int]]:
    """Queries worth a time line, each with its name: good ones at three quantiles, a late one, two that were lost."""
    followed = np.unique(visits.query)
    good = followed[run.good[followed]]
    late = followed[(run.prediction & ~run.good)[followed]]
    lost = followed[~run.prediction[followed]]
    chosen: list[tuple[str, int]] = []
    if len(good):
        ordered = good[np.argsort(run.latency[good], kind="stable")]
        for name, quantile in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            chosen.append((f"good, {name}", int(ordered[min(len(ordered) - 1, int(quantile * len(ordered)))])))
    if len(late):
        chosen.append(("late", int(late[len(late) // 2])))
    picked = lost[[len(lost) // 3, 2 * len(lost) // 3]].tolist() if len(lost) else []
    return chosen + [(f"lost at {run.stage[query]}" if run.stage[query] else "lost", query) for query in picked]


def timelines(axes: Axes, run: RunSeries, visits: Visits) -> None:
    """One row for each example: its stages one after another, each as queue, batch wait and execution."""
    chosen = examples(run, visits)
    labels = []
    for row, (name, query) in enumerate(chosen):
        labels.append(f"{name}\n#{query} at {run.due[query]:.1f} s")
        mine = visits.of(query)
        branches: list[float] = []  # until when each lane of this row is taken: branches run at once
        for place in range(len(mine.query)):
            _bar(axes, mine, place, row, _lane(branches, mine, place))
    axes.set_yticks(range(len(chosen)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.axvline(1e3 * run.slo, color=OVER, linewidth=0.9, linestyle="--")
    axes.set(xlabel="ms since the query was due", xlim=(0, None))
    axes.grid(visible=False)
    handles = [Patch(color=colour, label=label) for _, colour, label in _PARTS]
    axes.legend(handles=handles, frameon=False, fontsize=7, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def consumed(axes: Axes, run: RunSeries, visits: Visits) -> None:
    """The mean time that each stage took of a query, and its hops, stacked by the second in which it was due."""
    end = float(run.due.max()) if len(run.due) else 1.0
    width = max(1.0, end / _WINDOWS)
    edges = np.arange(0, end + width, width)
    taken = 1e3 * (visits.queued + visits.waited + visits.executed)
    below: NDArray[np.float64] = np.zeros(len(edges) - 1)
    for number, name in enumerate(visits.stages):
        mine = visits.stage == number
        due = run.due[visits.query[mine]]
        sums, counts = np.histogram(due, edges, weights=taken[mine])[0], np.histogram(due, edges)[0]
        mean = sums / np.maximum(1, counts)
        colour = _SHADES((number + 0.5) / len(visits.stages))
        axes.fill_between(edges[:-1] + width / 2, below, below + mean, step="mid", color=colour, alpha=0.8, label=name)
        below = below + mean
    queries, hops = between(visits, run.latency)
    due = run.due[queries]
    sums, counts = np.histogram(due, edges, weights=1e3 * hops)[0], np.histogram(due, edges)[0]
    top = below + sums / np.maximum(1, counts)
    axes.fill_between(edges[:-1] + width / 2, below, top, step="mid", color=HOPS, alpha=0.8, label="hops")
    axes.axhline(1e3 * run.slo, color=OVER, linewidth=0.9, linestyle="--", label="SLO")
    axes.set(xlabel="seconds", ylabel="budget consumed, ms", ylim=(0, None), xlim=(0, end))
    axes.legend(frameon=False, fontsize=7, ncols=2)


def _lane(branches: list[float], mine: Visits, place: int) -> int:
    """The lane of a row in which a visit is drawn: the first that is free when it begins."""
    begins = float(mine.arrived[place])
    ends = begins + float(mine.queued[place] + mine.waited[place] + mine.executed[place])
    for lane, until in enumerate(branches):
        if until <= begins + 1e-9:
            branches[lane] = ends
            return lane
    branches.append(ends)
    return len(branches) - 1


def _bar(axes: Axes, mine: Visits, place: int, row: int, lane: int) -> None:
    at = 1e3 * float(mine.arrived[place])
    top = row - 0.13 + 0.36 * lane
    for part, colour, _ in _PARTS:
        length = 1e3 * float(getattr(mine, part)[place])
        axes.barh(top + 0.13, length, height=0.26, left=at, color=colour, linewidth=0)
        at += length
    begins = 1e3 * float(mine.arrived[place])
    axes.text(begins, top - 0.02, mine.stages[int(mine.stage[place])], fontsize=6, va="bottom", clip_on=True)
    axes.plot([begins, begins], [top, top + 0.26], color="black", linewidth=0.6)


_STRIPE: Final = 0.03  # of the chart's height: a stage's times of High Budget First


def draw_loads(axes: Axes, stages: Mapping[str, StageLoad]) -> None:
    """Mu of each stage; below, a stripe where it took the high budgets first."""
    top = max([1.2, *(float(stage.mu.max()) for stage in stages.values() if len(stage.mu))]) * 1.05
    for number, (name, stage) in enumerate(stages.items()):
        colour = _SHADES((number + 0.5) / len(stages))
        axes.plot(stage.at, stage.mu, color=colour, linewidth=1.0, label=name)
        low, high = -_STRIPE * top * (number + 1), -_STRIPE * top * number
        axes.fill_between(stage.at, low, high, where=stage.high, step="post", color=colour, linewidth=0)
    axes.axhline(1.0, color="black", linewidth=0.8, linestyle="--")
    axes.set(xlabel="seconds (striped: high budgets first)", ylabel="load: arrivals / capacity")
    axes.set(ylim=(-_STRIPE * top * (len(stages) + 1), top), xlim=(0, None))
    axes.legend(frameon=False, fontsize=7, ncols=2)


GOOD, LATE, LOST, LOAD = "#2a7f62", "#d98e04", "#b3392f", "#4a5568"
_RUN_WINDOWS = 100  # over a run, at most
_MOST: Final = 4_000  # points of a scatter plot
STYLE = {
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
}


def per_second(times: NDArray[np.float64], seconds: int) -> NDArray[np.int64]:
    """Counts in 1 s bins from 0 to `seconds`; what lies outside is left out."""
    return np.histogram(times, bins=np.arange(seconds + 1))[0]


def _rates(axes: Axes, run: RunSeries) -> None:
    seconds = max(1, int(np.ceil(run.due.max() + 1e-9))) if len(run.due) else 1
    at = np.arange(seconds) + 0.5
    axes.fill_between(at, per_second(run.due, seconds), step="mid", color=LOAD, alpha=0.25, label="arrivals")
    axes.step(at, per_second(run.due[run.good], seconds), where="mid", color=GOOD, label="good (by arrival)")
    lost = per_second(run.due[~run.good], seconds)
    axes.step(at, lost, where="mid", color=LOST, linewidth=0.9, label="dropped, failed or late")
    axes.set(xlabel="seconds", ylabel="queries per second", xlim=(0, seconds), ylim=(0, None))
    axes.legend(frameon=False, fontsize=8)


def _drop_rate(axes: Axes, run: RunSeries) -> None:
    end = float(run.due.max()) if len(run.due) else 1.0
    width = max(1.0, end / _RUN_WINDOWS)
    edges = np.arange(0, end + width, width)
    middle, every = edges[:-1] + width / 2, np.histogram(run.due, edges)[0]
    behind = axes.twinx()
    behind.fill_between(middle, every / width, step="mid", color=LOAD, alpha=0.2)
    behind.set(ylabel="arrivals per second", ylim=(0, None))
    behind.grid(visible=False)
    below = np.zeros(len(middle))
    for which, colour, label in (
        (~run.prediction, LOST, "dropped or failed"),
        (run.prediction & ~run.good, LATE, "late"),
    ):
        share = 100 * np.histogram(run.due[which], edges)[0] / np.maximum(1, every)
        axes.fill_between(middle, below, below + share, step="mid", color=colour, alpha=0.75, label=label)
        below = below + share
    axes.set(xlabel="seconds", ylabel="drop rate, %", ylim=(0, max(1.0, 1.05 * float(below.max()))), xlim=(0, end))
    axes.set_zorder(behind.get_zorder() + 1)
    axes.patch.set_visible(False)
    axes.legend(frameon=False, fontsize=8)


def _latencies(axes: Axes, run: RunSeries) -> None:
    """At most `_MOST` queries, evenly picked: a scatter plot of more is only a larger file."""
    keep = np.linspace(0, len(run.due) - 1, min(len(run.due), _MOST)).astype(int)
    for which, colour, label in ((run.good, GOOD, "good"), (run.prediction & ~run.good, LATE, "late")):
        shown = keep[which[keep]]
        axes.scatter(run.due[shown], 1e3 * run.latency[shown], s=3, color=colour, linewidths=0, label=label)
    axes.axhline(1e3 * run.slo, color=LOST, linewidth=0.9, linestyle="--", label="SLO")
    axes.set(xlabel="seconds", ylabel="latency, ms", ylim=(0, None))
    axes.legend(frameon=False, fontsize=8)


def _distribution(axes: Axes, run: RunSeries) -> None:
    ordered = np.sort(run.latency[run.prediction])
    if len(ordered):
        share = np.arange(1, len(ordered) + 1) / len(run.due)
        axes.step(1e3 * ordered, 100 * share, where="post", color=GOOD)
    axes.axvline(1e3 * run.slo, color=LOST, linewidth=0.9, linestyle="--", label="SLO")
    axes.set(xlabel="latency, ms", ylabel="% of all queries answered within", ylim=(0, 100), xlim=(0, None))
    axes.legend(frameon=False, fontsize=8)


def _losses(axes: Axes, run: RunSeries, stages: list[str]) -> None:
    counts = [sum(1 for stage in run.stage if stage == name) for name in stages]
    bars = axes.barh(stages, counts, color=LOST, alpha=0.8)
    axes.bar_label(bars, padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel="queries dropped or failed", xlim=(0, max([*counts, 1]) * 1.15))
    axes.grid(visible=False)


def svg_of(plan: Callable[[Axes], None], size: tuple[float, float] = (6.4, 3.2)) -> str:
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=size, layout="constrained")
        try:
            plan(axes)
            text = io.StringIO()
            figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        finally:
            plt.close(figure)
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def write_page(path: Path, template: str, **values: object) -> None:
    """Fill in a template of this folder, and write it to `path`. Text is escaped. Raises OSError."""
    text = resources.files("spillway.agents.pages").joinpath(template).read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    path.write_text(environment.from_string(text).render(**values), encoding="utf-8")


def _tiles(report: Report) -> list[tuple[str, str]]:
    outcomes, latency = report.outcomes, report.latency_ms
    return [
        (f"{report.requests:,}", "queries"),
        (f"{report.goodput_rps:,.1f}/s", "goodput"),
        (f"{100 * report.drop_rate:.2f} %", "drop rate (late counts as dropped)"),
        (f"{100 * report.invalid_rate:.2f} %", "execution time spent on lost queries"),
        (f"{latency.p50:.0f} ms" if latency.p50 is not None else "-", "median latency"),
        (f"{latency.p99:.0f} ms" if latency.p99 is not None else "-", "99th percentile"),
        (f"{outcomes.dropped:,} / {outcomes.failed:,}", "dropped / failed"),
        (f"{outcomes.missing:,} / {outcomes.duplicate:,}", "missing / duplicate"),
    ]


def write(
    path: Path, report: Report, run: RunSeries, visits: Visits, loads: Mapping[str, StageLoad] | None = None
) -> None:
    """Write the page; some of its charts only where there are visits, or loads."""
    plans: dict[str, Callable[[Axes], None]] = {
        "rates": lambda axes: _rates(axes, run),
        "drops": lambda axes: _drop_rate(axes, run),
        "latencies": lambda axes: _latencies(axes, run),
        "distribution": lambda axes: _distribution(axes, run),
        "losses": lambda axes: _losses(axes, run, list(report.stages)),
    }
    if len(visits.query):
        plans |= {
            "timelines": lambda axes: timelines(axes, run, visits),
            "consumed": lambda axes: consumed(axes, run, visits),
        }
    if loads:
        plans["loads"] = lambda axes: draw_loads(axes, loads)
    charts = {name: svg_of(plan) for name, plan in plans.items()}
    write_page(path, "run_report.html", report=report, tiles=_tiles(report), charts=charts)
