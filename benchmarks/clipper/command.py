"""`python -m benchmarks clipper`: sections 3.4 and 3.5 of Crankshaw's thesis, its headlines beside ours."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarks.clipper import front, selection, served
from benchmarks.clipper.beside import beside
from benchmarks.clipper.bounds import bounds
from benchmarks.clipper.failing import failing
from benchmarks.clipper.observations import observations
from benchmarks.clipper.stragglers import stragglers
from benchmarks.output import show
from benchmarks.scene import kafka
from spillway.agents.live.stage.beginning import look_through_rarely

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.output import Table

FRONT = ("profiles", "limits", "bounds", "delays", "workers")
SELECTION = ("agreement", "failing", "stragglers", "personal")
SERVED = ("cost", "cache", "beside", "observations")
ALL = (*FRONT, *SELECTION, *SERVED)


@click.command()
@click.option("--only", multiple=True, type=click.Choice([*ALL, "selection"]), help="This section; may be repeated.")
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="Of each measurement.")
@click.option("--seconds", type=click.FloatRange(0.2), default=6.0, show_default=True, help="Of each run.")
@click.option("--mlserver-python", type=click.Path(exists=True, path_type=Path), help="Of where MLServer is.")
def clipper(*, only: tuple[str, ...], repeats: int, seconds: float, mlserver_python: Path | None) -> None:
    """Show what batching, workers, the cache and selection bring, beside the thesis' figures.

    \b
    Example:
      python -m benchmarks clipper --only limits --repeats 3
    """  # noqa: D301 - click's own marks
    sections: dict[str, Callable[[], Table]] = {
        "profiles": lambda: front.profiles(repeats),
        "limits": lambda: front.batch_limits(repeats, seconds),
        "bounds": lambda: bounds(repeats, 10 * seconds),
        "delays": lambda: front.delays(repeats, seconds),
        "workers": lambda: front.workers(repeats, seconds),
        "agreement": lambda: selection.agreement(repeats),
        "failing": failing,
        "stragglers": lambda: stragglers(repeats),
        "personal": lambda: selection.personal(repeats),
    }
    look_through_rarely()  # as a served front does: else the collector of garbage takes a part of every large batch
    chosen = [
        name
        for name in ALL
        if not only
        or name in only
        or ("limits" in only and name == "bounds")
        or ("selection" in only and name in (*SELECTION, "observations"))
    ]
    with ExitStack() as stack:
        if set(chosen) & set(SERVED):
            where = (*stack.enter_context(kafka()), repeats, seconds)
            sections["cost"] = partial(served.cost, *where)
            sections["cache"] = partial(served.zipf, *where)
            sections["beside"] = partial(beside, *where, mlserver_python)
            sections["observations"] = partial(observations, *where)
        show(sections[name]() for name in chosen)
