"""What Spillway costs beside the models: processor time and Kafka requests per query, with models that do nothing.

Given a pipeline, it measures the latency that is added to that one's own models (`benchmarks.overhead.latency`).
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import numpy as np

from benchmarks.output import Table, by_key, median_spread, tell
from benchmarks.overhead import latency
from benchmarks.overhead.runs import SENDER, measured
from benchmarks.overhead.tracing import tracing
from spillway.agents.cli.options import json_option
from spillway.producers.report import PREDICTION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.overhead.runs import Measured, Spent
    from spillway.producers.load.tally import LoadResult

Cell = tuple[str, str, str]  # table, row, column
_RATES: Final = (40.0, 150.0, 600.0)  # queries a second
_LATENCY_RATE: Final = 100.0
_TRACING_RATE: Final = 150.0
_DIAMOND: Final = ((60.0, "300ms"), (150.0, "800ms"))  # rates and SLOs
_STEPS: Final = tuple(150 * 1.4**step for step in range(8))  # queries a second, on the way to the best goodput
_PAST_BEST: Final = 0.9
_IDLE: Final = "idle"
_ANSWERED: Final = "answered a second"  # less than the rate where the pipeline, or the machine, is past its capacity

_CHAIN_FILE: Final = """\
name: chain
slo: 5s
partitions: 4
stages:
  - {{name: first, model: "overhead_models:Pass"}}
  - {{name: second, model: "overhead_models:Count", after: first, state: {{kind: keyed, replication: {mode}}}}}
  - {{name: third, model: "overhead_models:Count", after: second, state: {{kind: keyed, replication: {mode}}}}}
  - {{name: last, model: "overhead_models:Pass", after: third}}
"""
_DIAMOND_FILE: Final = """\
name: diamond
slo: {slo}
partitions: 4
stages:
  - {{name: first, model: "overhead_models:Pass"}}
  - {{name: left, model: "overhead_models:Count", after: first, state: {{kind: keyed, replication: nspb}}}}
  - {{name: right, model: "overhead_models:Count", after: first, state: {{kind: keyed, replication: nspb}}}}
  - {{name: meet, model: "overhead_models:Meet", after: [left, right]}}
  - {{name: last, model: "overhead_models:Pass", after: meet}}
"""


def chain(work: Path, mode: str, rates: Sequence[float], seconds: float) -> Iterator[tuple[Cell, float]]:
    """Measure four stages, the two in the middle with states that are replicated as `mode` says."""
    name, file = f"chain, {mode}", _CHAIN_FILE.format(mode=mode)
    with measured(work / "cpu", file) as served:
        result, _ = served.steady(_LATENCY_RATE, seconds)
        took = (result.finished - result.due)[result.kind == PREDICTION] * 1e3
        for row, share in (("p50", 0.5), ("p99", 0.99)):
            yield (f"{name}: latency, ms", row, f"{_LATENCY_RATE:g}/s"), float(np.quantile(took, share))
        for rate in rates:
            result, spent = served.steady(rate, seconds)
            yield from _cpu(name, f"{rate:g}/s", spent)
        yield from _idle_cpu(name, served.idle(seconds))
    with measured(work / "requests", file, log_requests=True) as served:
        for rate in rates:
            _, spent = served.steady(rate, seconds)
            table, column = f"{name}: requests a query", f"{rate:g}/s"
            yield from _requests(table, column, spent, max(1, spent.answered))
            yield (table, _ANSWERED, column), spent.answered / spent.seconds
        spent = served.idle(seconds)
        yield from _requests(f"{name}: requests a second", _IDLE, spent, spent.seconds)


def _cpu(name: str, column: str, spent: Spent) -> Iterator[tuple[Cell, float]]:
    table = f"{name}: CPU time a query, ms"
    a_query = {process: seconds * 1e3 / max(1, spent.answered) for process, seconds in spent.cpu.items()}
    for process, value in a_query.items():
        yield (table, process, column), value
    yield (table, "all but the sender", column), sum(a_query.values()) - a_query[SENDER]
    yield (table, _ANSWERED, column), spent.answered / spent.seconds


def _idle_cpu(name: str, spent: Spent) -> Iterator[tuple[Cell, float]]:
    table = f"{name}: without a load, % of a core"
    shares = {process: 100 * seconds / spent.seconds for process, seconds in spent.cpu.items() if process != SENDER}
    for process, value in {**shares, "all": sum(shares.values())}.items():
        yield (table, process, _IDLE), value


def _requests(table: str, column: str, spent: Spent, per: float) -> Iterator[tuple[Cell, float]]:
    """Yield the requests by API, and by who asked."""
    by_api: Counter[str] = Counter()
    by_process: Counter[str] = Counter()
    for (process, api), number in spent.requests.items():
        by_api[api] += number
        by_process[process] += number
    for api, number in by_api.most_common():
        yield (table, api, column), number / per
    for process, number in by_process.most_common():
        yield (table, f"(of {process})", column), number / per
    yield (table, "all", column), by_api.total() / per


def diamond(work: Path, seconds: float) -> Iterator[tuple[Cell, float]]:
    """Measure five stages under `pard`: what is in time, and how much of its best goodput stays at twice that rate."""
    for rate, slo in _DIAMOND:
        with measured(work / f"{rate:g}", _DIAMOND_FILE.format(slo=slo), "--policy", "pard") as served:
            limit = served.pipeline.spec.slo
            result, spent = served.steady(rate, seconds)
            yield ("diamond, nspb: in time, %", f"SLO {slo}", f"{rate:g}/s"), 100 * _in_time(result, limit)
            yield from _cpu("diamond, nspb", f"{rate:g}/s", spent)
            if (rate, slo) == _DIAMOND[-1]:
                yield from _past_capacity(served, limit, seconds)


def _past_capacity(served: Measured, slo: float, seconds: float) -> Iterator[tuple[Cell, float]]:
    table = f"diamond, nspb: goodput, SLO {_DIAMOND[-1][1]}"
    best_rate = best = 0.0
    for rate in _STEPS:
        goodput = rate * _in_time(served.steady(rate, seconds)[0], slo)
        if goodput > best:
            best_rate, best = rate, goodput
        elif goodput < _PAST_BEST * best:
            break
    yield (table, "best, queries/s", ""), best
    yield (table, "at a rate of", ""), best_rate
    twice = 2 * best_rate * _in_time(served.steady(2 * best_rate, seconds)[0], slo)
    yield (table, "at twice that rate, % of the best", ""), 100 * twice / best


def _in_time(result: LoadResult, slo: float) -> float:
    """The share of all queries that was answered within `slo` seconds of when it was due."""
    with np.errstate(invalid="ignore"):  # what never finished
        good = (result.kind == PREDICTION) & (result.finished - result.due <= slo)
    return float(good.mean())


PARTS: Final = ("chain-none", "chain-nspb", "diamond", "tracing")


def run(parts: Sequence[str], rates: Sequence[float], seconds: float) -> list[tuple[Cell, float]]:
    found: list[tuple[Cell, float]] = []
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as folder:
        for part in parts:
            work = Path(folder) / part
            work.mkdir()
            if part == "tracing":
                found += tracing(work, _CHAIN_FILE.format(mode="none"), _TRACING_RATE, seconds)
                continue
            _, _, mode = part.partition("-")
            found += chain(work, mode, rates, seconds) if mode else diamond(work, seconds)
    return found


@click.command()
@click.argument("pipeline", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@click.option("--only", "parts", multiple=True, type=click.Choice(PARTS), help="What to measure.  [default: all]")
@click.option("--payload", metavar="MODULE:FUNCTION", help="Of PIPELINE's inputs.  [default: by signature]")
@click.option("--rate", "rates", multiple=True, type=click.FloatRange(0.1), help="Queries/s; may be repeated.")
@click.option("--seconds", type=click.FloatRange(1), default=10.0, show_default=True, help="Seconds of each load.")
@click.option("--repeats", type=click.IntRange(1), help="Runs; reports the median.  [default: 1; with PIPELINE 5]")
@json_option
def overhead(
    pipeline: Path | None,
    parts: tuple[str, ...],
    payload: str | None,
    rates: tuple[float, ...],
    seconds: float,
    repeats: int | None,
    *,
    as_json: bool,
) -> None:
    """Measure what pipelines cost besides their models.

    Without PIPELINE: processor time and Kafka requests per query, by process and by API, of pipelines whose models do
    nothing, at 40, 150 and 600 a second, and what sending traces adds; about fifteen minutes. With PIPELINE: the
    latency at low load (5 a second), minus the executions on the critical path.

    \b
    Examples:
      python -m benchmarks overhead --only chain-none --rate 40
      python -m benchmarks overhead examples/plates/pipeline.yaml --payload examples.plates.payload:scene
    """  # noqa: D301 - click's own marks
    if pipeline is not None:
        rate = rates[0] if rates else 5.0
        figures = latency.measure(pipeline, payload, rate, seconds, repeats or 5)
        title = f"{pipeline} at {rate:g} queries/s, {len(figures)} runs: median (least to most)"
        tell(figures, Table(title, ("", ""), by_key(figures)), as_json=as_json)
        return
    runs = [run(parts or PARTS, rates or _RATES, seconds) for _ in range(repeats or 1)]
    listed = [[{"cell": list(cell), "value": round(value, 4)} for cell, value in cells] for cells in runs]
    tell(listed, *tables(runs), as_json=as_json)


def tables(runs: Sequence[Sequence[tuple[Cell, float]]]) -> list[Table]:
    """Make tables of medians, with the least and the most where there are several runs."""
    values: dict[Cell, list[float]] = defaultdict(list)
    for cell, value in (one for cells in runs for one in cells):
        values[cell].append(value)
    made = []
    for title in dict.fromkeys(title for title, _, _ in values):
        names = dict.fromkeys(row for own, row, _ in values if own == title)
        columns = tuple(dict.fromkeys(column for own, _, column in values if own == title))
        rows = [
            [name, *(median_spread(values.get((title, name, column), ()), "{:.2f}", "-") for column in columns)]
            for name in names
        ]
        made.append(Table(title, ("", *columns), rows))
    return made
