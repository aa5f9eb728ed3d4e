"""`python -m benchmarks gateway`: what the gateway costs over `Client`, and whether it holds when it is struck."""

from __future__ import annotations

from functools import partial

import click

from benchmarks.gateway import hostile, kill, latency
from benchmarks.output import tell
from spillway.agents.cli.options import json_option
from spillway.lineage.errors import SpillwayError

_PARTS = {"latency": latency, "kill": kill, "hostile": hostile}


@click.command()
@click.option("--only", "parts", multiple=True, type=click.Choice(list(_PARTS)), help="This part.  [default: all]")
@click.option("--rate", type=click.FloatRange(1), default=200.0, show_default=True, help="Queries/s of latency.")
@click.option("--seconds", type=click.FloatRange(1), default=20.0, show_default=True, help="Of each load of latency.")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True, help="Turns of latency.")
@click.option("--hostile", "attacks", type=click.IntRange(1), default=100_000, show_default=True, help="Bad requests.")
@click.option("--requests", type=click.IntRange(1), default=20_000, show_default=True, help="Of kill.")
@click.option("--kill-rate", type=click.FloatRange(1), default=100.0, show_default=True, help="Requests/s of kill.")
@json_option
def gateway(
    parts: tuple[str, ...],
    rate: float,
    seconds: float,
    repeats: int,
    attacks: int,
    requests: int,
    kill_rate: float,
    *,
    as_json: bool,
) -> None:
    """Measure the gateway.

    latency: plain JSON and the Open Inference Protocol against `Client`, in turns, each timed from when it was due; and
    the processor time that the gateway takes a request, against that of a process with a `Client`.

    kill: SIGKILL to each of two gateways, a stage and the gate in turn, twice, under a client that does not retry. Each
    request gets an answer that fits it, a code that says what is wrong, or a connection that fails as its gateway dies.

    hostile: bad requests of many kinds and stalled connections. The good requests beside them have to be answered,
    none may be a fault of the gateway, and its memory may grow by 50 MiB at most.

    Ends with 1 where what kill or hostile says does not hold.

    \b
    Examples:
      python -m benchmarks gateway --only hostile --hostile 10000
    """  # noqa: D301 - click's own marks
    measures = {
        "latency": partial(latency.measure, rate, seconds, repeats),
        "kill": partial(kill.measure, requests, kill_rate),
        "hostile": partial(hostile.measure, attacks),
    }
    results = {part: measures[part]() for part in parts or _PARTS}
    tell(results, *(_PARTS[part].table(result) for part, result in results.items()), as_json=as_json)
    if broken := [what for part, result in results.items() for what in _PARTS[part].broken(result)]:
        raise SpillwayError("; ".join(broken))
