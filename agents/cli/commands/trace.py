"""`spillway trace`: traffic made by a recipe or taken from elsewhere, what there is to say of it, and its picture."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from spillway.agents.cli.options import FACTOR, FILE, LazyGroup, json_option, positive, trace_duration_option
from spillway.lineage.errors import UsageError
from spillway.producers.load import foreign, recipes, traces
from spillway.producers.load.generator import recorded
from spillway.producers.load.statistics import Statistics, statistics
from spillway.producers.recording import read_recording
from spillway.topology.quantities import show_duration

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OUTPUT = click.option(
    "-o", "--output", type=FILE, required=True, metavar="FILE", help="Where to write; compressed if it ends in .gz."
)
_SEED = click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random arrivals."
)
_TRACE = click.argument("source", metavar="TRACE")
_SERVICE = click.option(
    "--service",
    callback=positive,
    default="100ms",
    show_default=True,
    help="The shortest window; each further one is twice as long.",
)


@click.group(cls=LazyGroup)
def trace() -> None:
    """Make, import, describe and draw traces of arrivals.

    A trace is a CSV file with one time per line (t) or with counts (second,requests), as replay and whatif read it.

    \b
    Example: spillway trace make gamma:rate=150,cv2=4,for=60s -o bursty.csv
    """  # noqa: D301 - click's own marks


@trace.command()
@click.argument("recipe", nargs=-1, required=True, metavar="PHASE...")
@_OUTPUT
@_SEED
def make(recipe: tuple[str, ...], output: Path, seed: int) -> None:
    """Make a trace of phases that follow one another.

    \b
    A phase is one of
      poisson:rate=100,for=60s                 requests a second
      gamma:rate=100,cv2=4,for=60s             independent gaps, gamma-distributed
      mmpp:rate=50/300,stay=20s/2s,for=10min   states, each with its rate and mean stay
      diurnal:rate=50..200,period=24h,for=24h  a cosine, from low to high and back
    A..B in place of a rate or a cv2 moves from A to B over the phase. A '+' among
    phases begins another stream from 0, and the trace is the sum of all.

    cv2 is the variance of the gaps by the square of their mean: 1 is Poisson, 0 evenly spaced. The InferLine thesis
    calls it CV; elsewhere, as in gamma:RATE,CV of replay and whatif, CV is its square root.

    \b
    Example:
      spillway trace make gamma:rate=150,cv2=1,for=60s gamma:rate=150..250,cv2=1..4,for=60s -o rising.csv
      spillway trace make diurnal:rate=20..90,period=1h,for=1h + mmpp:rate=0/300,stay=5min/3s,for=1h -o day.csv.gz
    """  # noqa: D301 - click's own marks
    _write(output, recipes.make(recipe, seed))


@trace.command("import")
@click.argument("source", type=FILE, metavar="FILE")
@_OUTPUT
@click.option(
    "--counts", callback=positive, metavar="TIME", help="Each row is a count of requests in this time: 1s, 1min."
)
@click.option("--column", metavar="NAME|N", help="Column of the times or counts.  [default: one with a usual name]")
@click.option("--began", metavar="NAME|N", help="When a counted row began.  [default: rows have no gaps between them]")
@click.option("--speed", type=FACTOR, default=1.0, show_default=True, help="Multiply the speed of the trace.")
@click.option("--rate", type=FACTOR, help="Requests per second on average, after --speed.")
@click.option("--peak", type=FACTOR, help="Requests per second in the busiest counted row, after --speed.")
@_SEED
def import_(
    source: Path, output: Path, *, counts: float | None, column: str | None, began: str | None, seed: int, **wanted: Any
) -> None:
    """Make a trace from a foreign CSV file, or from another trace; .gz too.

    Rows are requests, with dates or times in seconds (for milliseconds use --speed 1000), or with --counts numbers
    of requests, which are spread randomly over the row's time. The Azure LLM traces need no option.

    \b
    Example:
      spillway trace import AzureLLMInferenceTrace_conv.csv -o conversation.csv --rate 20
      spillway trace import per-minute.csv --counts 1min --column requests --speed 2 --peak 300 -o day.csv
    """  # noqa: D301 - click's own marks
    if began is not None and counts is None:
        raise UsageError("--began needs counted rows: give the length of a row with --counts")
    if wanted["rate"] is not None and wanted["peak"] is not None:
        raise UsageError("--rate and --peak both set the number of requests: give one of them")
    layout, rescaling = foreign.Layout(column, counts, began), foreign.Rescaling(**wanted)
    _write(output, foreign.read(source, layout, rescaling, np.random.default_rng(seed)))


@trace.command()
@_TRACE
@trace_duration_option
@_SERVICE
@_SEED
@json_option
def stat(source: str, *, duration: float | None, service: float, seed: int, as_json: bool) -> None:
    """Show the rate of TRACE, cv2 of its gaps, and the dispersion and traffic envelope over several scales.

    TRACE is a file, a recording's directory, or a process as replay names it, with --duration. cv2 is the variance of
    the gaps divided by the square of their mean (1: Poisson). Dispersion is the variance divided by the mean of the
    counts in windows (1: Poisson); a renewal process comes near its cv2 over long ones. The envelope is the most
    requests a second in any window, of --service (InferLine's T_s) and its doubles up to 60 s.

    \b
    Example: spillway trace stat bursty.csv --service 50ms
    """  # noqa: D301 - click's own marks
    found = statistics(_arrivals(source, seed, duration), service)
    if as_json:
        click.echo(json.dumps({"trace": source, **dataclasses.asdict(found)}, ensure_ascii=False))
        return
    click.echo(
        f"{found.requests:,} requests in {found.seconds:,.1f} s: {found.rate:.1f}/s, cv2 of the gaps {found.cv2:.2f}"
    )
    headings, *rows = _table(found)
    table = Table(*headings, box=None)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


@trace.command()
@_TRACE
@trace_duration_option
@_SERVICE
@_SEED
@click.option("-o", "--output", type=FILE, required=True, metavar="FILE", help="Where to write the page.")
def plot(source: str, *, duration: float | None, service: float, seed: int, output: Path) -> None:
    """Draw TRACE on one HTML page: rate over time, traffic envelope, gaps between requests, and the figures of stat.

    \b
    Example: spillway trace plot bursty.csv -o bursty.html
    """  # noqa: D301 - click's own marks
    times = _arrivals(source, seed, duration)
    found = statistics(times, service)
    from spillway.agents.pages import trace_page  # noqa: PLC0415 - takes a second to import

    trace_page.write(output, source, times, found, _table(found))
    click.echo(f"written to {output}")


def _arrivals(source: str, seed: int, duration: float | None) -> NDArray[np.float64]:
    if Path(source).is_dir():
        return recorded(read_recording(Path(source), partial(click.echo, err=True)), duration=duration).due
    return traces.arrivals(source, seed=seed, duration=duration)


def _table(found: Statistics) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("window", "dispersion", "most requests/s", "by the mean")]
    for scale in found.scales:
        length = show_duration(float(f"{scale.seconds:.4g}"))
        dispersion = "-" if scale.dispersion is None else f"{scale.dispersion:.2f}"
        rows.append((length, dispersion, f"{scale.envelope:,.1f}", f"{scale.envelope / found.rate:.2f}"))
    return rows


def _write(output: Path, times: NDArray[np.float64]) -> None:
    if not len(times):
        raise UsageError("the trace has no request: give a higher rate, or a longer time")
    traces.write_times(output, times)
    click.echo(f"written to {output}: {len(times):,} requests in {times[-1]:,.1f} s")
