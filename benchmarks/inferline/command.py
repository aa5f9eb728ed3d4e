"""`python -m benchmarks inferline`: InferLine beside the thesis' figures; all but `live` in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from benchmarks.inferline.coarse import coarse
from benchmarks.inferline.live import live
from benchmarks.inferline.traffic import changes, recorded
from benchmarks.output import fill_in, markdown_option, show

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.output import Table


SECTIONS: Final[dict[str, Callable[[int], Table]]] = {
    "coarse": coarse,
    "changes": changes,
    "recorded": recorded,
    "live": live,
}


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(SECTIONS)), help="May be repeated.")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True, help="Traces of each kind; 1 live.")
@markdown_option
def inferline(*, only: tuple[str, ...], repeats: int, markdown: Path | None) -> None:
    """Show what plans cost and how many queries miss the SLO, beside coarse-grained sizes and AutoScale's rule.

    \b
    Example:
      python -m benchmarks inferline --only coarse --repeats 1
    """  # noqa: D301 - click's own marks
    for name in only or SECTIONS:
        click.echo(f"## {name}\n")
        fill_in(markdown, {name: show([SECTIONS[name](repeats)])})
