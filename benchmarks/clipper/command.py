"""`python -m benchmarks clipper`: sections 3.4 and 3.5 of Crankshaw's thesis, its headlines beside ours."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarks.clipper.beside import beside
from benchmarks.clipper.failing import failing
from benchmarks.clipper.limits import batch_limits
from benchmarks.clipper.observations import observations
from benchmarks.clipper.stragglers import stragglers
from benchmarks.output import show
from benchmarks.scene import kafka
from spillway.agents.live.stage.startup import look_through_rarely

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.output import Table

SERVED = ("beside", "observations")
ALL = ("limits", "failing", "stragglers", *SERVED)


@click.command()
@click.option("--only", multiple=True, type=click.Choice(ALL), help="This section; may be repeated.")
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="Of each measurement.")
@click.option("--seconds", type=click.FloatRange(0.2), default=6.0, show_default=True, help="Of each run.")
@click.option("--mlserver-python", type=click.Path(exists=True, path_type=Path), help="Of where MLServer is.")
def clipper(*, only: tuple[str, ...], repeats: int, seconds: float, mlserver_python: Path | None) -> None:
    """Show what adaptive batches, the cache and selection bring, beside the thesis' figures.

    \b
    Example:
      python -m benchmarks clipper --only limits --repeats 3
    """  # noqa: D301 - click's own marks
    sections: dict[str, Callable[[], Table]] = {
        "limits": lambda: batch_limits(repeats, seconds),
        "failing": lambda: failing(repeats),
        "stragglers": lambda: stragglers(repeats),
    }
    look_through_rarely()  # as a served front does: else the collector of garbage takes a part of every large batch
    chosen = [name for name in ALL if not only or name in only]
    with ExitStack() as stack:
        if set(chosen) & set(SERVED):
            where = (*stack.enter_context(kafka()), repeats, seconds)
            sections["beside"] = partial(beside, *where, mlserver_python)
            sections["observations"] = partial(observations, *where)
        show(sections[name]() for name in chosen)
