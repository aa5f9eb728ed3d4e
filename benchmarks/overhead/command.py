"""What Spillway costs beside the models: processor time and Kafka requests per query, with models that do nothing.

Given a pipeline, it measures the latency that is added to that one's own models (`benchmarks.overhead.latency`).
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import numpy as np

from benchmarks.output import Table, by_key, median_spread, tell
from benchmarks.overhead import latency
from benchmarks.overhead.runs import SENDER, measured
from spillway.agents.cli.options import json_option
from spillway.lineage.errors import SpillwayError, UsageError
from spillway.producers.report import PREDICTION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.overhead.runs import Measured, Spent
    from spillway.producers.load.tally import LoadResult

Cell = tuple[str, str, str]  # table, row, column
_RATES: Final = (40.0, 150.0, 600.0)  # queries a second
_LATENCY_RATE: Final = 100.0
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


PARTS: Final = ("chain-none", "chain-nspb", "diamond")


def run(parts: Sequence[str], rates: Sequence[float], seconds: float) -> list[tuple[Cell, float]]:
    found: list[tuple[Cell, float]] = []
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as folder:
        for part in parts:
            work = Path(folder) / part
            work.mkdir()
            _, _, mode = part.partition("-")
            found += chain(work, mode, rates, seconds) if mode else diamond(work, seconds)
    return found


@click.command()
@click.argument("pipeline", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@click.option("--only", "parts", multiple=True, type=click.Choice(PARTS), help="What to measure.  [default: all]")
@click.option("--rates", "rates", default="40,150,600", show_default=True, help="Queries/s, of the chains.")
@click.option("--against", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Another checkout.")
@click.option(
    "--payload",
    metavar="MODULE:FUNCTION",
    help="With PIPELINE: function that makes the inputs.  [default: by signature]",
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), default=5.0, show_default=True, help="With PIPELINE.")
@click.option("--seconds", type=click.FloatRange(1), default=10.0, show_default=True, help="Seconds of each load.")
@click.option("--repeats", type=click.IntRange(1), help="Runs; reports the median.  [default: 1; with PIPELINE 5]")
@json_option
def overhead(
    pipeline: Path | None,
    parts: tuple[str, ...],
    rates: str,
    against: Path | None,
    payload: str | None,
    rate: float,
    seconds: float,
    repeats: int | None,
    *,
    as_json: bool,
) -> None:
    """Measure what pipelines cost besides their models.

    Without PIPELINE: processor time and Kafka requests per query, by process and by API, of pipelines whose models do
    nothing; about eight minutes. With --against, this checkout and the one at that path are measured alternately, the
    latter with its own interpreter (PATH/.venv). With PIPELINE: the latency at low load, minus the executions on the
    critical path.

    \b
    Examples:
      python -m benchmarks overhead --only chain-none --rates 40
      python -m benchmarks overhead --only chain-nspb --against ../before --repeats 3
      python -m benchmarks overhead examples/plates/pipeline.yaml --payload examples.plates.payload:scene
    """  # noqa: D301 - click's own marks
    if pipeline is not None:
        runs = latency.measure(pipeline, payload, rate, seconds, repeats or 5)
        title = f"{pipeline} at {rate:g} queries/s, {len(runs)} runs: median (least to most)"
        tell(runs, Table(title, ("", ""), by_key(runs)), as_json=as_json)
        return
    chosen, numbers = parts or PARTS, _numbers(rates)
    sides: dict[str, list[list[tuple[Cell, float]]]] = defaultdict(list)
    for turn in range(repeats or 1):
        if against is None:
            sides["here"].append(run(chosen, numbers, seconds))
            continue
        for tree in (against, _HERE) if turn % 2 == 0 else (_HERE, against):
            side = "here" if tree == _HERE else "against"
            sides[side].append(_elsewhere(tree, chosen, rates, seconds))
            click.echo(f"turn {turn + 1}: {side} measured", err=True)
    listed = {side: [_listed(cells) for cells in found] for side, found in sides.items()}
    tell(listed, *tables(sides), as_json=as_json)


_HERE: Final = Path(__file__).parents[2]


def _numbers(rates: str) -> tuple[float, ...]:
    found: tuple[float, ...] = ()
    with suppress(ValueError):
        found = tuple(float(rate) for rate in rates.split(","))
    if not found or min(found) <= 0:
        raise UsageError(f"--rates {rates!r}: write numbers above 0, as 40,150")
    return found


# This benchmark, with the other checkout's everything else: its models lie in the folder that a pipeline is served in.
_BORROWED: Final = """\
import sys
import spillway
sys.path.append(sys.argv.pop(1))
from benchmarks.overhead.command import overhead
overhead()
"""


def _elsewhere(tree: Path, parts: Sequence[str], rates: str, seconds: float) -> list[tuple[Cell, float]]:
    """Run this benchmark in another checkout, by that one's interpreter. Raises SpillwayError where it ends badly."""
    python = tree.absolute() / ".venv" / "bin" / "python"
    if not python.exists():
        raise UsageError(f"--against {tree}: there is no {python}; create the checkout's environment with `make env`")
    chosen = [word for part in parts for word in ("--only", part)]
    options = [*chosen, "--rates", rates, "--seconds", str(seconds), "--json"]
    command = [str(python), "-P", "-c", _BORROWED, str(_HERE), *options]
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as folder:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SpillwayError(f"the benchmark failed in {tree}: {done.stderr[-2000:]}")
    cells = json.loads(done.stdout)["here"][0]
    return [((each["table"], each["row"], each["column"]), each["value"]) for each in cells]


def _listed(cells: Sequence[tuple[Cell, float]]) -> list[dict[str, str | float]]:
    return [
        {"table": table, "row": row, "column": column, "value": round(value, 4)}
        for (table, row, column), value in cells
    ]


def tables(sides: Mapping[str, Sequence[Sequence[tuple[Cell, float]]]]) -> list[Table]:
    """Make tables of medians, with the least and the most where there are several runs; against: then, and now."""
    values: dict[Cell, dict[str, list[float]]] = {}
    for side in sorted(sides):  # "against" first
        for cell, value in (one for cells in sides[side] for one in cells):
            values.setdefault(cell, {}).setdefault(side, []).append(value)

    def shown(cell: Cell) -> str:
        return " -> ".join(median_spread(values.get(cell, {}).get(side, ()), "{:.2f}", "-") for side in sorted(sides))

    made = []
    for title in dict.fromkeys(title for title, _, _ in values):
        names = dict.fromkeys(row for own, row, _ in values if own == title)
        columns = tuple(dict.fromkeys(column for own, _, column in values if own == title))
        rows = [[name, *(shown((title, name, column)) for column in columns)] for name in names]
        made.append(Table(title, ("", *columns), rows))
    return made
