"""One HTML page of charts and a table: what a trace and the demonstrations are shown on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.agents.pages.run_report import LOST, svg_of, write_page

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
    drawn = {caption: svg_of(draw, size) for caption, draw in charts.items()}
    write_page(path, "page.html", title=title, text=text, charts=drawn, head=head, rows=rows)


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
