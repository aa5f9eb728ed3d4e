"""One HTML page of charts and a table: what a trace and the demonstrations are shown on."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

import jinja2
import matplotlib as mpl

from spillway.agents.pages.run_report import STYLE, svg_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
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

    Raises:
        OSError: The file cannot be written.
    """
    with mpl.rc_context(STYLE):
        drawn = {caption: svg_of(draw, size) for caption, draw in charts.items()}
    template = resources.files("spillway.agents.pages").joinpath("page.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    page = environment.from_string(template).render(title=title, text=text, charts=drawn, head=head, rows=rows)
    path.write_text(page, encoding="utf-8")
