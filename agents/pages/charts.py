"""The charts of a run, as SVG text: arrivals and goodput, drop rate, latency, its distribution, drops per stage.

Where the visits to stages are known, two more: time lines of single queries, and the budget that each stage took;
where the policies' synchronisations are, how loaded each stage was.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

mpl.use("svg")  # no display is needed, nor looked for
from matplotlib import pyplot as plt

from agents.pages import load_chart, visit_charts
from agents.pages.run_series import RunSeries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from agents.pages.load_chart import StageLoad
    from agents.pages.visits import Visits

GOOD, LATE, LOST, LOAD = "#2a7f62", "#d98e04", "#b3392f", "#4a5568"
_WINDOWS = 100  # over a run, at most
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
    width = max(1.0, end / _WINDOWS)
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
    good, late = run.good, run.prediction & ~run.good
    axes.scatter(run.due[good], 1e3 * run.latency[good], s=3, color=GOOD, linewidths=0, label="good", rasterized=False)
    axes.scatter(run.due[late], 1e3 * run.latency[late], s=3, color=LATE, linewidths=0, label="late")
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


def thinned(run: RunSeries, most: int = 4000) -> RunSeries:
    """At most `most` queries, evenly picked: a scatter plot of more is only a larger file."""
    if len(run.due) <= most:
        return run
    keep = np.linspace(0, len(run.due) - 1, most).astype(int)
    return RunSeries(run.due[keep], run.latency[keep], run.prediction[keep], [run.stage[i] for i in keep], run.slo)


def draw(
    run: RunSeries,
    stages: list[str],
    visits: Visits | None = None,
    loads: Mapping[str, StageLoad] | None = None,
) -> dict[str, str]:
    """Charts by name, each an <svg> element; `timelines` and `consumed` only with `visits`, `loads` only with these."""
    plans: dict[str, Callable[[Axes], None]] = {
        "rates": lambda axes: _rates(axes, run),
        "drops": lambda axes: _drop_rate(axes, run),
        "latencies": lambda axes: _latencies(axes, thinned(run)),
        "distribution": lambda axes: _distribution(axes, run),
        "losses": lambda axes: _losses(axes, run, stages),
    }
    if visits is not None and len(visits.query):
        plans |= {
            "timelines": lambda axes: visit_charts.timelines(axes, run, visits),
            "consumed": lambda axes: visit_charts.consumed(axes, run, visits),
        }
    if loads:
        plans["loads"] = lambda axes: load_chart.loads(axes, loads)
    with mpl.rc_context(STYLE):
        return {name: svg_of(plan) for name, plan in plans.items()}


def svg_of(plan: Callable[[Axes], None], size: tuple[float, float] = (6.4, 3.2)) -> str:
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    try:
        plan(axes)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    finally:
        plt.close(figure)
    svg = text.getvalue()
    return svg[svg.index("<svg") :]
