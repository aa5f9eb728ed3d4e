"""`spillway bench hop`: one hop through our stage driver, beside other ways to get from topic to topic."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from agents.bench.hop_contest import DESCRIPTIONS, available, measure
from agents.bench.hop_report import medians, table, verdicts
from agents.broker import EmbeddedBroker
from agents.cli.options import bootstrap_option, client_config_option, json_option
from producers.connection import ClientSettings

if TYPE_CHECKING:
    from agents.bench.hop_contest import Run


@click.command()
@bootstrap_option
@client_config_option
@click.option("--repeats", type=click.IntRange(1), default=7, show_default=True, help="Interleaved runs of each.")
@click.option("--seconds", type=click.FloatRange(1), default=5.0, show_default=True, help="Of each steady load.")
@click.option(
    "--messages", type=click.IntRange(3000), default=20_000, show_default=True, help="Preloaded, then drained."
)
@click.option(
    "--only", type=click.Choice(list(DESCRIPTIONS)), multiple=True, help="These contestants alone.  [default: all]"
)
@click.option(
    "--quix-python",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Python of an environment with Quix Streams, where it cannot share this one.",
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
    defaults it takes about a quarter of an hour; a broker on the same machine shares its cores with everybody.

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
