"""A comparison of configurations, as one HTML page that needs nothing else, or as a plot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from spillway.agents.pages.run_report import LATE, LOAD, LOST, STYLE, svg_of, write_page
from spillway.agents.whatif import table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from spillway.agents.whatif.study import Study, Verdict


def compared(found: Study) -> Comparison:
    headings, *rows = table.cells(found)
    curves = []
    for row in found.all_rows:
        name, fates = row.policy if row.label == "as the file says" else f"{row.policy} {row.label}", row.fates
        if row in (found.recorded, found.predicted):
            name = f"{row.label}: {row.policy}"
        curves.append(Curve(name, fates.due, fates.latency, fates.predicted, fates.good, row is found.recorded))
    return Comparison(
        title=f"{found.pipeline}: what if",
        subtitle=f"{found.traffic} · dispatch {found.dispatch} · {1000 * found.hop:.1f} ms a hop",
        headings=headings,
        rows=rows,
        curves=curves,
        slo=float(max(row.fates.budget.max(initial=0.0) for row in found.all_rows)),
        foot=table.foot(found),
        emulated=found.emulated,
        verdict=found.verdict,
    )


_COLOURS: Final = plt.get_cmap("tab10")
_LINES: Final = 8  # curves in one chart; more cannot be told apart
_WINDOWS: Final = 60  # over the whole time, at most


@dataclass(frozen=True, slots=True)
class Curve:
    """One configuration's queries, in order of coming. `latency` counts of predictions; all seconds."""

    label: str
    due: NDArray[np.float64]
    latency: NDArray[np.float64]
    predicted: NDArray[np.bool_]
    good: NDArray[np.bool_]
    measured: bool = False  # not simulated


def bars(axes: Axes, curves: list[Curve]) -> None:
    labels = [curve.label for curve in curves]
    late = [100 * float((curve.predicted & ~curve.good).mean()) for curve in curves]
    dropped = [100 * float((~curve.predicted).mean()) for curve in curves]
    places = np.arange(len(curves))
    axes.barh(places, dropped, color=LOST, alpha=0.85, label="dropped")
    stacked = axes.barh(places, late, left=dropped, color=LATE, alpha=0.85, label="late")
    totals = [f"{a + b:.2f} %" for a, b in zip(dropped, late, strict=True)]
    axes.bar_label(stacked, totals, padding=3, fontsize=8)
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    axes.set(xlabel="% of queries", xlim=(0, max(1e-3, 1.2 * max(a + b for a, b in zip(dropped, late, strict=True)))))
    axes.grid(visible=False)
    axes.legend(frameon=False, fontsize=8)


def _style(curve: Curve, number: int) -> dict[str, Any]:
    return {"color": "black", "linewidth": 1.8} if curve.measured else {"color": _COLOURS(number), "linewidth": 1.2}


def over_time(axes: Axes, curves: list[Curve]) -> None:
    """Drop rate by the time at which queries came, and the arrivals behind it."""
    end = max(float(curve.due.max()) for curve in curves)
    width = max(1.0, end / _WINDOWS)
    edges = np.arange(0, end + width, width)
    middle = edges[:-1] + width / 2
    arrivals = np.histogram(curves[0].due, edges)[0]
    for number, curve in enumerate(curves[:_LINES]):
        lost = np.histogram(curve.due[~curve.good], edges)[0]
        rate = 100 * lost / np.maximum(1, np.histogram(curve.due, edges)[0])
        axes.plot(middle, rate, label=curve.label, **_style(curve, number))
    axes.set(xlabel="seconds", ylabel="drop rate, %", ylim=(0, None), xlim=(0, end))
    behind = axes.twinx()
    behind.fill_between(middle, arrivals / width, step="mid", color=LOAD, alpha=0.15)
    behind.set(ylabel="arrivals per second", ylim=(0, None))
    behind.grid(visible=False)
    axes.legend(frameon=False, fontsize=8)


def latencies(axes: Axes, curves: list[Curve], slo: float) -> None:
    for number, curve in enumerate(curves[:_LINES]):
        ordered = np.sort(curve.latency[curve.predicted])
        share = 100 * np.arange(1, len(ordered) + 1) / max(1, len(curve.due))
        axes.step(1e3 * ordered, share, where="post", label=curve.label, **_style(curve, number))
    axes.axvline(1e3 * slo, color=LOST, linewidth=0.9, linestyle="--", label="SLO")
    axes.set(xlabel="latency, ms", ylabel="% of all queries answered within", ylim=(0, 100), xlim=(0, None))
    axes.legend(frameon=False, fontsize=8)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is shown: a table as text, and a curve for each of its rows. `slo` in seconds."""

    title: str
    subtitle: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    curves: list[Curve]
    slo: float
    foot: Sequence[str] = ()
    emulated: bool = False
    verdict: Verdict | None = None


def write(path: Path, page: Comparison) -> None:
    curves = page.curves
    charts = {
        "bars": svg_of(lambda axes: bars(axes, curves), (6.4, 2.0 + 0.25 * len(curves))),
        "time": svg_of(lambda axes: over_time(axes, curves)),
        "latencies": svg_of(lambda axes: latencies(axes, curves, page.slo)),
    }
    write_page(path, "comparison.html", page=page, charts=charts)


def plot(path: Path, page: Comparison) -> None:
    curves, size = page.curves, (17, 3.2 + 0.22 * len(page.curves))
    with mpl.rc_context(STYLE):
        figure, (first, second, third) = plt.subplots(1, 3, figsize=size, layout="constrained")
        try:
            bars(first, curves)
            over_time(second, curves)
            latencies(third, curves, page.slo)
            figure.savefig(path, dpi=130)
        finally:
            plt.close(figure)
