"""A trace as one HTML page: rate over time, traffic envelope, gaps between requests, and the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from spillway.agents.pages import page
from spillway.agents.pages.run_report import GOOD, LATE, LOAD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from spillway.producers.load.statistics import Statistics

_POINTS: Final = 600  # over the whole time, at most
_BINS: Final = 60


def over_time(axes: Axes, times: NDArray[np.float64], found: Statistics) -> None:
    width = max(1.0, found.seconds / _POINTS)
    edges = np.arange(0, found.seconds + width, width)
    axes.stairs(np.histogram(times, edges)[0] / width, edges, fill=True, color=LOAD, alpha=0.4)
    axes.axhline(found.rate, color=GOOD, linewidth=0.9, linestyle="--", label="mean")
    axes.set(xlabel="seconds", ylabel=f"requests/s, over {width:.3g} s", ylim=(0, None), xlim=(0, edges[-1]))
    axes.legend(frameon=False, fontsize=8)


def envelope(axes: Axes, found: Statistics) -> None:
    at = [scale.seconds for scale in found.scales]
    axes.plot(at, [scale.envelope for scale in found.scales], color=LOAD, marker="o", markersize=3, label="the most")
    axes.axhline(found.rate, color=GOOD, linewidth=0.9, linestyle="--", label="mean")
    axes.set(xlabel="window, seconds", ylabel="requests/s", xscale="log", ylim=(0, None))
    axes.legend(frameon=False, fontsize=8)


def gaps(axes: Axes, times: NDArray[np.float64]) -> None:
    """On logarithmic scales, beside what a Poisson process of the same rate would have."""
    between = 1e3 * np.diff(times)
    between = between[between > 0]
    edges = np.geomspace(between.min(), between.max() * 1.001, _BINS)
    expected = len(between) * -np.diff(np.exp(-edges / between.mean()))
    axes.stairs(np.histogram(between, edges)[0], edges, fill=True, color=LOAD, alpha=0.4, label="here")
    axes.stairs(expected, edges, color=LATE, label="if Poisson")
    axes.set(xlabel="gap, ms", ylabel="gaps", xscale="log", yscale="log", ylim=(0.5, None))
    axes.legend(frameon=False, fontsize=8)


def write(path: Path, title: str, times: NDArray[np.float64], found: Statistics, rows: Sequence[Sequence[str]]) -> None:
    """Write the page. `rows` is a table with its headings, over the scales."""
    charts: dict[str, Callable[[Axes], None]] = {
        "Rate over time": lambda axes: over_time(axes, times, found),
        "Traffic envelope: the most requests a second in any window": lambda axes: envelope(axes, found),
        "Gaps between requests": lambda axes: gaps(axes, times),
    }
    text = f"{found.requests:,} requests in {found.seconds:,.1f} s, {found.rate:.1f}/s, cv2 of the gaps {found.cv2:.2f}"
    page.write(path, title, charts, rows[1:], head=rows[0], text=text)
