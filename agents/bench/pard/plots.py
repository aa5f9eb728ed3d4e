"""The charts of the comparison, drawn as SVG from what the sections measured."""

from __future__ import annotations

import statistics
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

mpl.use("svg")  # no display is needed, nor looked for
from matplotlib import pyplot as plt

from agents.bench.pard.sections import ALL
from agents.pages.charts import STYLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matplotlib.axes import Axes

    from agents.bench.pard.sections import Result

COLORS = {
    "naive": "#9aa0a6",
    "nexus": "#d98e04",
    "clipper++": "#3b6fb6",
    "pard": "#b3392f",
    "instant": "#7a5195",
    "spillway": "#2a7f62",
}
_HIGH = 0.5  # of the replicas


@contextmanager
def chart(
    files: list[Path], folder: Path, name: str, rows: int = 1, columns: int = 1, width: float = 0.0
) -> Iterator[list[Axes]]:
    """Give axes to draw on; the figure is written as NAME.svg, which is added to `files`."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        size = (width or max(6.4, 4.2 * columns), 3.2 * rows)
        figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
        try:
            yield list(grid.flat)
            file = folder / f"{name}.svg"
            figure.savefig(file, metadata={"Date": None, "Creator": None})
            files.append(file)
        finally:
            plt.close(figure)


def _legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)


def draw_matrix(result: Result, folder: Path) -> list[Path]:
    files: list[Path] = []
    with chart(files, folder, "matrix", rows=2, width=12.0) as axes:
        for each, what in zip(axes, ("drop", "invalid"), strict=True):
            _bars(each, result["worker"], what)
    return files


def _bars(axes: Axes, cells: dict[str, Any], what: str) -> None:
    places = np.arange(len(cells))
    width = 0.8 / len(ALL)
    for number, policy in enumerate(ALL):
        heights = [100 * statistics.fmean(cell[policy][what]) if policy in cell else 0.0 for cell in cells.values()]
        axes.bar(places + number * width, heights, width, color=COLORS[policy], label=policy)
    axes.set_xticks(places + 0.4, list(cells), rotation=60, ha="right", fontsize=7)
    axes.set(ylabel=f"{what} rate, %")
    _legend(axes)


def draw_windows(result: Result, folder: Path) -> list[Path]:
    files: list[Path] = []
    cells = result["cells"]
    widths = [float(width) for width in result["widths"]]
    with chart(files, folder, "windows", columns=len(cells)) as axes:
        for each, (name, cell) in zip(axes, cells.items(), strict=True):
            for policy in ALL:
                if policy in cell:
                    values = [100 * statistics.fmean(cell[policy][width]) for width in result["widths"]]
                    each.plot(widths, values, marker="o", markersize=3, color=COLORS[policy], label=policy)
            each.set(
                xscale="log", xlabel="window, s", ylabel="drop rate of the worst window, %", title=name, ylim=(0, None)
            )
            _legend(each)
    return files


def draw_slo(result: Result, folder: Path) -> list[Path]:
    files: list[Path] = []
    with chart(files, folder, "slo") as (axes,):
        for policy in ALL:
            points = [(1000 * float(slo), result["drop"].get(f"{slo} {policy}")) for slo in result["slos"]]
            known = [(slo, 100 * statistics.fmean(drops)) for slo, drops in points if drops]
            if known:
                axes.plot(*zip(*known, strict=True), marker="o", markersize=3, color=COLORS[policy], label=policy)
        axes.set(xlabel="SLO, ms (batches planned anew)", ylabel="drop rate, %", ylim=(0, None))
        _legend(axes)
    return files


def draw_stress(result: Result, folder: Path) -> list[Path]:
    files: list[Path] = []
    curves = result["curves"]
    with chart(files, folder, "stress") as (axes,):
        some = next(iter(curves.values()))
        loads = [point["load"] for point in some]
        axes.plot(loads, [point["optimum"] for point in some], color="black", linestyle="--", label="optimum")
        for policy, points in curves.items():
            values = [statistics.fmean(point["goodput"]) for point in points]
            axes.plot(loads, values, marker="o", markersize=3, color=COLORS[policy], label=policy)
        axes.set(xlabel="load, times the capacity", ylabel="goodput per second", ylim=(0, None))
        _legend(axes)
    return files


def draw_sensitivity(result: Result, folder: Path) -> list[Path]:
    files: list[Path] = []
    curves = result["curves"]
    with chart(files, folder, "sensitivity", rows=2, columns=2) as axes:
        for each, (what, lines) in zip(axes, curves.items(), strict=True):
            for line, points in lines.items():
                values = [100 * statistics.fmean(drops) for drops in points.values()]
                color = COLORS.get(line)
                each.plot([float(at) for at in points], values, marker="o", markersize=3, color=color, label=line)
            each.set(xlabel=what, ylabel="drop rate, %", ylim=(0, None))
            if what == "period":
                each.set_xscale("log")
            _legend(each)
    return files


def draw_scaling(result: Result, folder: Path) -> list[Path]:
    files: list[Path] = []
    course = result["course"]
    with chart(files, folder, "scaling", rows=2, width=9.0) as (top, bottom):
        for policy, run in course.items():
            top.plot(_share(run["lost"], run["requests"]), color=COLORS[policy], label=policy, linewidth=0.9)
        top.set(xlabel="seconds", ylabel="drop rate, % (5 s)", ylim=(0, 100))
        _legend(top)
        some = next(iter(course.values()))
        bottom.fill_between(
            range(len(some["requests"])), some["requests"], color="#4a5568", alpha=0.25, label="requests"
        )
        bottom.set(xlabel="seconds", ylabel="requests per second", ylim=(0, None))
        second = bottom.twinx()
        at, workers = zip(*some["workers"], strict=True)
        second.step([*at, len(some["requests"])], [*workers, workers[-1]], where="post", color="#2a7f62")
        second.set(ylabel="workers of the first stage", ylim=(0, None))
        second.grid(visible=False)
    return files


def _share(lost: list[int], requests: list[int], over: int = 5) -> list[float]:
    """The drop rate in percent over the last so many seconds."""
    window = np.ones(over)
    sums = np.convolve(lost, window)[: len(lost)]
    counts = np.convolve(requests, window)[: len(lost)]
    return [float(each) for each in 100 * np.divide(sums, counts, out=np.zeros(len(lost)), where=counts > 0)]


def draw_stages(result: Result, folder: Path) -> list[Path]:
    files: list[Path] = []
    names, policies = result["stages"], result["policies"]
    with chart(files, folder, "stages", columns=2) as (left, right):
        places = np.arange(len(names))
        width = 0.8 / max(1, len(policies))
        for number, (policy, each) in enumerate(policies.items()):
            total = max(1, sum(each["drops"].values()) + each["late"])
            shares = [100 * each["drops"][name] / total for name in names]
            left.bar(places + number * width, shares, width, color=COLORS[policy], label=policy)
        left.set_xticks(places + 0.4, names)
        left.set(ylabel="% of what is lost")
        _legend(left)
        for name, waits in result["waits"].items():
            right.plot(waits["at"], waits["density"], label=f"from {name} on", linewidth=0.9)
        right.set(xlabel="summed batch wait, parts of the sum of d", ylabel="density", ylim=(0, 6))
        _legend(right)
    shown = [policy for policy in ("nexus", "clipper++", "pard", "spillway") if policy in policies]
    with chart(files, folder, "budgets", rows=len(shown) or 1, width=9.0) as axes:
        for each, policy in zip(axes, shown, strict=False):
            for name in names:
                seconds = 1000 * np.array(policies[policy]["consumed"][name]["seconds"])
                each.plot(np.convolve(seconds, np.ones(5) / 5, "same"), label=name, linewidth=0.9)
            each.set(xlabel="seconds", ylabel="consumed budget, ms", title=policy, ylim=(0, None))
            _legend(each)
    return files


def draw_timeline(result: Result, folder: Path) -> list[Path]:
    """Goodput and drop rate over time, latency, mu with the order, and single requests."""
    files: list[Path] = []
    runs = {policy: run for policy, run in result["runs"].items() if policy in ALL}
    with chart(files, folder, "over-time", rows=2, width=9.0) as (top, bottom):
        some = next(iter(runs.values()))
        top.fill_between(range(len(some["requests"])), some["requests"], color="#4a5568", alpha=0.2, label="requests")
        for policy, run in runs.items():
            top.plot(run["good"], color=COLORS[policy], label=policy, linewidth=0.9)
            lost = [sent - good for sent, good in zip(run["requests"], run["good"], strict=True)]
            bottom.plot(_share(lost, run["requests"]), color=COLORS[policy], label=policy, linewidth=0.9)
        top.axhline(some["capacity"], color="black", linewidth=0.6, linestyle="--", label="capacity")
        top.set(xlabel="seconds", ylabel="goodput per second", ylim=(0, None))
        bottom.set(xlabel="seconds", ylabel="drop rate, % (5 s)", ylim=(0, 100))
        _legend(top)
        _legend(bottom)
    with chart(files, folder, "latency") as (axes,):
        for policy, run in runs.items():
            share = 100 * run["answered"] * np.linspace(0, 1, len(run["latency"]))
            axes.plot(1000 * np.array(run["latency"]), share, color=COLORS[policy], label=policy)
        axes.axvline(1000 * result["slo"], color="black", linewidth=0.6, linestyle="--", label="SLO")
        axes.set(
            xlabel="latency, ms",
            ylabel="% of all requests answered within",
            xlim=(0, 4000 * result["slo"]),
            ylim=(0, 100),
        )
        _legend(axes)
    _draw_mu(result, folder, files)
    _draw_ways(result, folder, files)
    return files


def _draw_mu(result: Result, folder: Path, files: list[Path]) -> None:
    shown = {policy: run["pressure"] for policy, run in result["runs"].items() if run["pressure"]}
    if not shown:
        return
    with chart(files, folder, "mu", rows=len(shown), width=9.0) as axes:
        for each, (policy, pressure) in zip(axes, shown.items(), strict=True):
            stage, course = next(iter(pressure.items()))
            high = np.array(course["hbf"]) > _HIGH
            each.plot(course["at"], course["mu"], color=COLORS[policy], linewidth=0.9, label="mu")
            top = max([1.2, *course["mu"]])
            each.fill_between(course["at"], 0, top, where=high.tolist(), color="#b3392f", alpha=0.15, label="HBF")
            each.axhline(1.0, color="black", linewidth=0.6, linestyle="--")
            each.set(xlabel="seconds", ylabel=f"mu of {stage}", title=policy, ylim=(0, top))
            _legend(each)


def _draw_ways(result: Result, folder: Path, files: list[Path]) -> None:
    colors = {"queue": "#d98e04", "wait": "#3b6fb6", "run": "#2a7f62"}
    for policy in ("pard", "spillway"):
        ways = result["runs"].get(policy, {}).get("ways", {})
        if not ways:
            continue
        with chart(files, folder, f"requests-{policy}", rows=len(ways)) as axes:
            for each, (what, way) in zip(axes, ways.items(), strict=True):
                first = way[0][1]
                for stage, arrived, entered, started, ended, dropped in way:
                    spans = zip(colors, (arrived, entered, started), (entered, started, ended), strict=True)
                    for part, begin, end in spans:
                        each.barh(stage, 1000 * (end - begin), left=1000 * (begin - first), color=colors[part])
                    if dropped:
                        each.scatter([1000 * (ended - first)], [stage], marker="x", color="#b3392f")
                for part, color in colors.items():
                    each.barh(way[0][0], 0, color=color, label=part)
                each.invert_yaxis()
                each.axvline(1000 * result["slo"], color="black", linewidth=0.6, linestyle="--", label="SLO")
                each.set(xlabel="ms since it was sent", title=f"{policy}: {what}")
                _legend(each)
