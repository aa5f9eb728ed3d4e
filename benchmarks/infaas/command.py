"""`python -m benchmarks infaas`: INFaaS' section 6.1 and its integer program; hosts and variants are emulated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from benchmarks.infaas.contest import contest
from benchmarks.infaas.live import live
from benchmarks.infaas.program import growth
from benchmarks.output import fill_in, markdown_option, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from benchmarks.output import Table

SECTIONS: Final[dict[str, Callable[[int], Iterable[Table]]]] = {"contest": contest, "program": growth, "live": live}


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(SECTIONS)), help="May be repeated.")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True, help="Traces of each load, or seeds.")
@markdown_option
def infaas(*, only: tuple[str, ...], repeats: int, markdown: Path | None) -> None:
    """Show what choosing and scaling variants costs and misses, beside static variants and INFaaS' own figures.

    \b
    Example:
      python -m benchmarks infaas --only program --repeats 1
    """  # noqa: D301 - click's own marks
    for name in only or SECTIONS:
        click.echo(f"## {name}\n")
        fill_in(markdown, {name: show(SECTIONS[name](repeats))})
