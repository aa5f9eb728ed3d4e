"""A comparison of configurations, as one HTML page that needs nothing else, or as a plot."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

import jinja2
import matplotlib as mpl
from matplotlib import pyplot as plt

from agents.pages.charts import STYLE, svg_of
from agents.pages.comparison import Curve, bars, latencies, over_time, together

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from agents.whatif.trust import Verdict


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


def render(page: Comparison) -> str:
    curves = page.curves
    height = 2.0 + 0.25 * len(curves)
    charts = {
        "bars": _svg(lambda axes: bars(axes, curves), height),
        "time": _svg(lambda axes: over_time(axes, curves), 3.2),
        "latencies": _svg(lambda axes: latencies(axes, curves, page.slo), 3.2),
    }
    template = resources.files("agents.pages").joinpath("comparison.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(template).render(page=page, charts=charts)


def write(path: Path, page: Comparison) -> None:
    path.write_text(render(page), encoding="utf-8")


def plot(path: Path, page: Comparison) -> None:
    """Write the charts side by side to `path`, in the form that its name says."""
    with mpl.rc_context(STYLE):
        figure = together(page.curves, page.slo)
        try:
            figure.savefig(path, dpi=130)
        finally:
            plt.close(figure)


def _svg(plan: Callable[[Axes], None], height: float) -> str:
    with mpl.rc_context(STYLE):
        return svg_of(plan, (6.4, height))
