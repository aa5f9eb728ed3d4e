"""One HTML page of charts and a table: what a trace and the demonstrations are shown on."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

import jinja2
import matplotlib as mpl

from spillway.agents.pages.run_report import LOST, STYLE, svg_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes


def write(
    path: Path,
    title: str,
    charts: Mapping[str, Callable[[Axes], None]],
    rows: Sequence[Sequence[str]],
    *,
    text: str = "",
    head: Sequence[str] = (),
    size: tuple[float, float] = (6.4, 3.2),
) -> None:
    """Write the page. `charts` draw by caption, in inches of `size`; `head` is the table's first line. Text is escaped.

    `text` says in a sentence or two what is to be seen.

    Raises:
        OSError: The file cannot be written.
    """
    with mpl.rc_context(STYLE):
        drawn = {caption: svg_of(draw, size) for caption, draw in charts.items()}
    template = resources.files("spillway.agents.pages").joinpath("page.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    page = environment.from_string(template).render(title=title, text=text, charts=drawn, head=head, rows=rows)
    path.write_text(page, encoding="utf-8")


def mark_moments(axes: Axes, moments: Iterable[tuple[float, str]]) -> None:
    """Mark what happened from outside while a chart over time was taken. Call after the data are drawn."""
    for at, what in moments:
        axes.axvline(at, color=LOST, linewidth=1)
        axes.annotate(
            what,
            (at, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -8),
            textcoords="offset points",
            fontsize=7,
            color=LOST,
        )
