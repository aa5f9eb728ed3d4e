"""A comparison of policies and sizes on recorded traffic, as one HTML page that needs nothing else, or as a plot."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

import jinja2
import matplotlib as mpl
from matplotlib import pyplot as plt

from agents.pages.charts import STYLE, svg_of
from agents.pages.comparison import Curve, bars, latencies, over_time, together
from agents.whatif import table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.axes import Axes

    from agents.whatif.study import Row, Study


def render(found: Study) -> str:
    """The page's text."""
    curves, slo = _curves(found), _slo(found)
    height = 2.0 + 0.25 * len(curves)
    charts = {
        "bars": _svg(lambda axes: bars(axes, curves), height),
        "time": _svg(lambda axes: over_time(axes, curves), 3.2),
        "latencies": _svg(lambda axes: latencies(axes, curves, slo), 3.2),
    }
    headings, *rows = table.cells(found)
    template = resources.files("agents.pages").joinpath("whatif.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(template).render(
        found=found,
        headings=headings,
        rows=rows,
        charts=charts,
        foot=table.foot(found),
        checks=[] if found.verdict is None else found.verdict.checks,
    )


def write(path: Path, found: Study) -> None:
    """Write the page to `path`."""
    path.write_text(render(found), encoding="utf-8")


def plot(path: Path, found: Study) -> None:
    """Write the charts side by side to `path`, in the form that its name says."""
    with mpl.rc_context(STYLE):
        figure = together(_curves(found), _slo(found))
        try:
            figure.savefig(path, dpi=130)
        finally:
            plt.close(figure)


def _svg(plan: Callable[[Axes], None], height: float) -> str:
    with mpl.rc_context(STYLE):
        return svg_of(plan, (6.4, height))


def _curves(found: Study) -> list[Curve]:
    return [
        Curve(
            _name(found, row),
            row.fates.due,
            row.fates.latency,
            row.fates.predicted,
            row.fates.good,
            measured=row is found.recorded,
        )
        for row in found.all_rows
    ]


def _name(found: Study, row: Row) -> str:
    if row in (found.recorded, found.predicted):
        return f"{row.label}: {row.policy}"
    return row.policy if row.label == "as the file says" else f"{row.policy} {row.label}"


def _slo(found: Study) -> float:
    return float(max(row.fates.budget.max(initial=0.0) for row in found.all_rows))
