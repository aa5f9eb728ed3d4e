"""`spillway bench hop`: one hop through our stage driver, beside other ways to get from topic to topic."""

from __future__ import annotations

import json
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from spillway.agents.bench.hop_contest import DESCRIPTIONS, OURS, available, measure
from spillway.agents.broker import EmbeddedBroker
from spillway.agents.cli.options import bootstrap_option, client_config_option, json_option
from spillway.producers.connection import ClientSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.agents.bench.hop_contest import Run


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
_P50_RATIO, _P50_MS, _BURST_SHARE, _DRAINED_RATIO, _AFTER_RATIO = 1.5, 5.0, 0.5, 2.2, 2.0


def medians(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        name: {figure: statistics.median(run[figure] for run in of_name) for figure in _COLUMNS}
        for name, of_name in runs.items()
        if of_name
    }


def table(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> Table:
    repeats = max(len(of_name) for of_name in runs.values())
    drawn = Table(title=f"One hop, median of {repeats} interleaved runs (least to most below)")
    drawn.add_column("")
    for heading in _COLUMNS.values():
        drawn.add_column(heading, justify="right")
    for name, row in medians(runs).items():
        cells = []
        for figure, value in row.items():
            all_values = [run[figure] for run in runs[name]]
            cells.append(f"{_number(value)}\n[dim]{_number(min(all_values))}-{_number(max(all_values))}[/dim]")
        drawn.add_row(f"{name}\n[dim]{DESCRIPTIONS[name]}[/dim]", *cells)
    return drawn


def verdicts(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, bool]:
    """Say which of the figures are reached, as far as who they are measured against has run."""
    found = medians(runs)
    if OURS not in found:
        return {}
    ours, verdict = found[OURS], {}
    raw, plain = found.get("aiokafka"), found.get("faust")
    for rate in ("100", "1000"):
        p50 = ours[f"p50_{rate}"]
        allowed = max(_P50_MS, _P50_RATIO * raw[f"p50_{rate}"]) if raw else _P50_MS
        verdict[f"p50 at {rate}/s: {p50:.1f} ms, at most {allowed:.1f} ms"] = p50 <= allowed
    usual, after = ours["p50_100"], ours["p50_after"]
    verdict[f"p50 after a burst: {after:.1f} ms, usually {usual:.1f} ms"] = after <= _AFTER_RATIO * usual
    if plain:
        burst, limit = ours["p99_burst"], _BURST_SHARE * plain["p99_burst"]
        verdict[f"p99 of a burst: {burst:.0f} ms, at most {limit:.0f} ms (half of Faust's)"] = burst <= limit
        drained, least = ours["drained"], _DRAINED_RATIO * plain["drained"]
        verdict[f"drained: {drained:.0f}/s, at least {least:.0f}/s (2.2 x Faust)"] = drained >= least
    return verdict


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"  # noqa: PLR2004 - three digits are enough


@click.command()
@bootstrap_option
@client_config_option
@click.option(
    "--repeats", type=click.IntRange(1), default=7, show_default=True, help="Interleaved runs of each contestant."
)
@click.option(
    "--seconds", type=click.FloatRange(1), default=5.0, show_default=True, help="Seconds of each steady load."
)
@click.option(
    "--messages",
    type=click.IntRange(3000),
    default=20_000,
    show_default=True,
    help="Messages that are preloaded, then drained.",
)
@click.option(
    "--only", type=click.Choice(list(DESCRIPTIONS)), multiple=True, help="Only these contestants.  [default: all]"
)
@click.option(
    "--quix-python",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Python of an environment with Quix Streams, if it is not installed in this one.",
)
@json_option
def hop(
    bootstrap: str | None,
    client_config: Path | None,
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
    same codec, and Quix Streams where it is installed. Starts a broker of its own unless one is named. With the
    defaults it takes about a quarter of an hour; a broker on the same machine shares its cores with the contestants.

    \b
    Example:
      spillway bench hop --repeats 3 --only spillway --only faust
    """  # noqa: D301 - click's own marks
    console = Console(stderr=True)
    names = available(list(only or DESCRIPTIONS), quix_python, console.log)
    runs: dict[str, list[Run]] = {name: [] for name in names}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-bench-")))
        if bootstrap is None and client_config is None:
            settings = ClientSettings(bootstrap=stack.enter_context(EmbeddedBroker(folder / "broker")).bootstrap)
        else:
            settings = ClientSettings.load(bootstrap, client_config)
        for name, run in measure(
            settings, names, folder, repeats=repeats, seconds=seconds, messages=messages, python=quix_python,
            say=console.log,
        ):  # fmt: skip
            runs[name].append(run)
    figures = {name: [run.figures() for run in of_name] for name, of_name in runs.items()}
    verdict = verdicts(figures)
    if as_json:
        click.echo(json.dumps({"medians": medians(figures), "runs": figures, "reached": verdict}, indent=2))
        return
    Console(width=None if Console().is_terminal else 200).print(table(figures))
    for text, reached in verdict.items():
        click.echo(f"{'reached' if reached else 'MISSED '}  {text}")
