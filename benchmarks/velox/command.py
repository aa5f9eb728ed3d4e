"""`python -m benchmarks velox`: what updates and rankings take, and what is learned, beside the thesis."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import click

from benchmarks.output import show
from benchmarks.scene import kafka
from benchmarks.velox.decided import rises, switches
from benchmarks.velox.latency import topk, updates
from benchmarks.velox.learned import bandits, hybrid, new_users
from benchmarks.velox.live import drifts, live_updates, rate

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.output import Table

IN_PROCESS = ("updates", "topk", "hybrid", "new-users", "bandits", "switches", "rises")
LIVE = ("live-updates", "rate", "drifts")  # served on a Kafka of their own
_ALL = (*IN_PROCESS, "live", *LIVE)


@click.command()
@click.option("--only", multiple=True, type=click.Choice(_ALL), help="This section; may be repeated.")
@click.option("--repeats", type=click.IntRange(2), default=50, show_default=True, help="Of each timing in process.")
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="Of live updates and of drifts.")
@click.option("--seeds", type=click.IntRange(2), default=20, show_default=True, help="Worlds of ratings.")
@click.option("--rounds", type=click.IntRange(1), default=200, show_default=True, help="Songs that a listener hears.")
def velox(*, only: tuple[str, ...], repeats: int, runs: int, seeds: int, rounds: int) -> None:
    """Show how long updates and rankings take, and how good the learned weights are, on generated ratings.

    The ratings stand for MovieLens 10M. Without --only nothing is served, and times are processor seconds: let the
    linear algebra use one thread with OPENBLAS_NUM_THREADS=1. `--only live` runs all sections that are served.

    \b
    Examples:
      OPENBLAS_NUM_THREADS=1 python -m benchmarks velox --only updates
      python -m benchmarks velox --only live
    """  # noqa: D301 - click's own marks
    sections: dict[str, Callable[[], Table]] = {
        "updates": partial(updates, repeats),
        "topk": partial(topk, repeats),
        "hybrid": partial(hybrid, seeds),
        "new-users": partial(new_users, seeds),
        "bandits": partial(bandits, seeds, rounds),
        "switches": partial(switches, 10 * seeds),
        "rises": partial(rises, seeds),
    }
    names = [each for name in only or IN_PROCESS for each in (LIVE if name == "live" else (name,))]
    with ExitStack() as stack:
        if set(names) & set(LIVE):
            where = stack.enter_context(kafka())
            sections["live-updates"] = partial(live_updates, *where, runs)
            sections["rate"] = partial(rate, *where)
            sections["drifts"] = partial(drifts, *where, runs)
        show(sections[name]() for name in names)
