"""`python -m benchmarks velox`: what updates and rankings take, and what is learned, beside the thesis."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarks.velox.latency import topk, updates
from benchmarks.velox.learned import bandits, hybrid, new_users

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.output import Table

SECTIONS = ("updates", "topk", "hybrid", "new-users", "bandits")


@click.command()
@click.option("--only", multiple=True, type=click.Choice(SECTIONS), help="This section; may be repeated.")
@click.option("--repeats", type=click.IntRange(2), default=50, show_default=True, help="Of each timing.")
@click.option("--seeds", type=click.IntRange(2), default=20, show_default=True, help="Worlds of ratings.")
@click.option("--rounds", type=click.IntRange(1), default=200, show_default=True, help="Songs that a listener hears.")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.md", help="Write the tables there, too."
)
def velox(*, only: tuple[str, ...], repeats: int, seeds: int, rounds: int, output: Path | None) -> None:
    """Show what updates and rankings take, and how well is learned, on generated ratings (in place of MovieLens 10M).

    Times are processor seconds; have the linear algebra use one thread, by OPENBLAS_NUM_THREADS=1.

    \b
    Example:
      OPENBLAS_NUM_THREADS=1 python -m benchmarks velox --only updates
    """  # noqa: D301 - click's own marks
    sections: dict[str, Callable[[], Table]] = {
        "updates": partial(updates, repeats),
        "topk": partial(topk, repeats),
        "hybrid": partial(hybrid, seeds),
        "new-users": partial(new_users, seeds),
        "bandits": partial(bandits, seeds, rounds),
    }
    tables = []
    for name in only or SECTIONS:
        tables.append(sections[name]().markdown())
        click.echo(tables[-1])
    if output is not None:
        output.write_text("\n".join(tables), encoding="utf-8")
