"""`python -m benchmarks gateway`: what the gateway costs over `Client`, and whether it holds when it is struck."""

from __future__ import annotations

import click

from benchmarks.gateway import hostile
from benchmarks.output import tell
from spillway.agents.cli.options import json_option
from spillway.lineage.errors import SpillwayError

_PARTS = ("hostile",)


@click.command()
@click.option("--only", "parts", multiple=True, type=click.Choice(_PARTS), help="What to measure.  [default: all]")
@click.option("--hostile", "attacks", type=click.IntRange(1), default=100_000, show_default=True, help="Bad requests.")
@json_option
def gateway(parts: tuple[str, ...], attacks: int, *, as_json: bool) -> None:
    """Measure the gateway.

    hostile: bad requests of many kinds and stalled connections. The good requests beside them have to be answered,
    none may be a fault of the gateway, and its memory may grow by 50 MiB at most.

    Ends with 1 where that does not hold.

    \b
    Examples:
      python -m benchmarks gateway --only hostile --hostile 10000
    """  # noqa: D301 - click's own marks
    results, tables, broken = {}, [], []
    for part in parts or _PARTS:
        if part == "hostile":
            results[part] = hostile.measure(attacks)
            tables.append(hostile.table(results[part]))
            broken += hostile.broken(results[part])
    tell(results, *tables, as_json=as_json)
    if broken:
        raise SpillwayError("; ".join(broken))
