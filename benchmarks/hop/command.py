"""`python -m benchmarks hop`: one hop through our stage driver, beside other ways to get from topic to topic."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarks.hop.contest import DESCRIPTIONS, Contest, available
from benchmarks.output import Table, median_spread, tell
from benchmarks.scene import kafka
from spillway.agents.cli.options import json_option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_COLUMNS = {
    "p50_100": "100/s p50 ms",
    "p99_100": "p99 ms",
    "cpu_100": "CPU us",
    "p50_1000": "1000/s p50 ms",
    "p99_1000": "p99 ms",
    "cpu_1000": "CPU us",
    "p99_burst": "burst p99 ms",
    "p50_after": "after: p50 ms",
    "p99_after": "p99 ms",
    "drained": "drained/s",
    "cpu_drained": "CPU us",
}


def table(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> Table:
    repeats = max(len(of_name) for of_name in runs.values())
    rows = [
        [name, *(_shown([run[figure] for run in of_name]) for figure in _COLUMNS)] for name, of_name in runs.items()
    ]
    notes = [f"{name}: {DESCRIPTIONS[name]}" for name in runs]
    title = f"One hop, median of {repeats} interleaved runs (least to most)"
    return Table(title, ("", *_COLUMNS.values()), rows, tuple(notes))


def _shown(values: Sequence[float]) -> str:
    return median_spread(values, "{:.1f}" if max(values) < 100 else "{:.0f}")


@click.command()
@click.option("--repeats", type=click.IntRange(1), default=7, show_default=True, help="Interleaved runs of each.")
@click.option("--seconds", type=click.FloatRange(1), default=5.0, show_default=True, help="Of each steady load.")
@click.option("--messages", type=click.IntRange(3000), default=20_000, show_default=True, help="That are drained.")
@click.option("--only", type=click.Choice(list(DESCRIPTIONS)), multiple=True, help="These contestants.  [default: all]")
@click.option("--quix-python", type=click.Path(path_type=Path, exists=True), help="Python of where Quix Streams is.")
@json_option
def hop(
    repeats: int,
    seconds: float,
    messages: int,
    only: tuple[str, ...],
    quix_python: Path | None,
    *,
    as_json: bool,
) -> None:
    """Measure one hop from topic to topic: latency, CPU, a burst, and draining.

    Our stage driver with a model that does nothing, against raw aiokafka, raw confluent-kafka, plain Faust with the
    same codec, and Quix Streams where it is installed, on a broker that shares the cores with them. Takes about a
    quarter of an hour.

    \b
    Example:
      python -m benchmarks hop --repeats 3 --only spillway --only faust
    """  # noqa: D301 - click's own marks
    say = partial(click.echo, err=True)
    names = available(list(only or DESCRIPTIONS), quix_python, say)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with kafka() as (folder, settings):
        for repeat, name in itertools.product(range(repeats), names):
            figures = Contest(settings, name, folder, quix_python).run(seconds, messages)
            say(f"{repeat + 1}/{repeats} {name}: " + ", ".join(f"{key} {value:.1f}" for key, value in figures.items()))
            runs[name].append(figures)
    tell(runs, table(runs), as_json=as_json)
