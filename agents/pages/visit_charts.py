"""Charts of where the time goes: time lines of single queries, and what each stage takes of the budget over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from agents.pages.run_series import RunSeries
    from agents.pages.visits import Visits

QUEUE, WAIT, EXECUTE, OVER = "#b3392f", "#d98e04", "#2a7f62", "#b3392f"
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
    """The mean time that each stage took of a query, stacked, by the second in which the query was due."""
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
