"""`python -m benchmarks policies`: every policy on applications, traces and dispatches, beside the clairvoyant bound.

The policies of the paper synchronise once a second, as there; ours ten times. `--reference` takes the cases of the
independent reference instead.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, get_args

import click

from benchmarks.output import Table, percent, tell
from benchmarks.pard import bound
from benchmarks.pard.applications import APPLICATIONS
from benchmarks.pard.rivals import NAMES
from benchmarks.policies_cells import OURS, Cell, Outcome, Row, bound_of, outcome, run
from benchmarks.policies_workloads import traces
from benchmarks.reference import TABLE, case, folder, rows
from spillway.agents.cli.options import json_option
from spillway.agents.sim.plan import Dispatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_APART = ("expired", OURS)  # not in the paper; ours, which comes last
_LEAST = 0.0002  # cells in which pard drops less say nothing about policies
_HALF = 2e-5  # what a drop rate of 0 counts as in a geometric mean


def measure(cells: Sequence[Cell], policies: Sequence[str], dispatches: Sequence[Dispatch]) -> Iterator[Row]:
    for cell in cells:
        least = bound_of(cell)
        for dispatch in dispatches:
            found = {policy: outcome(cell, policy, dispatch) for policy in policies}
            yield Row(cell.app, cell.trace, cell.load, dispatch, least, found, cell.seed)


def measure_beside(
    reference: Path, apps: Sequence[str], policies: Sequence[str], dispatches: Sequence[Dispatch]
) -> Iterator[Row]:
    """Hold the policies side by side in each of the reference's cases.

    With a queue per worker the other policies' figures are the reference's own, where it has them. With one queue per
    stage, which it does not know, all are ours, as those of `spillway` and the bound always are.
    """
    theirs: dict[tuple[str, str, str], dict[str, Outcome]] = {}
    for row in rows(reference, policies):
        rates = Outcome(float(row["drop_pct"]) / 100, float(row["invalid_pct"]) / 100)
        theirs.setdefault((row["app"], row["trace"], row["workers"]), {})[row["policy"]] = rates
    for dispatch, ((app, trace, workers), known) in itertools.product(dispatches, theirs.items()):
        if apps and app not in apps:
            continue
        pipeline, due, counts = case(reference, app, trace, workers)
        found = dict(known) if dispatch == "worker" else {}
        for policy in policies:
            if policy not in found:
                found[policy] = run(pipeline, due, counts, policy, dispatch)
        yield Row(app, trace, 1.0, dispatch, bound.of(pipeline, due, counts).rate, found)


@click.command()
@click.option("--app", "apps", multiple=True, type=click.Choice(APPLICATIONS), help="[default: all]")
@click.option("--trace", "names", multiple=True, type=click.Choice(traces()), help="[default: all]")
@click.option("--dispatch", "dispatches", multiple=True, type=click.Choice(get_args(Dispatch)), help="How queued.")
@click.option("--policy", "others", multiple=True, metavar="NAME", help="Beside pard and spillway.  [default: all]")
@click.option("--load", default=1.0, show_default=True, help="Load, as a multiple of what the workers are planned for.")
@click.option("--seconds", type=click.IntRange(10), default=120, show_default=True, help="Length of each trace.")
@click.option("--seed", "seeds", multiple=True, type=int, default=(0,), show_default=True, help="Of the arrivals.")
@click.option("--hops", is_flag=True, help="Delay each message by 3 to 20 ms from stage to stage.")
@click.option("--reference", "beside", is_flag=True, help="The cases of the independent reference.")
@json_option
def policies(
    apps: tuple[str, ...],
    names: tuple[str, ...],
    dispatches: tuple[Dispatch, ...],
    others: tuple[str, ...],
    load: float,
    seconds: int,
    seeds: tuple[int, ...],
    *,
    hops: bool,
    beside: bool,
    as_json: bool,
) -> None:
    """Compare all policies with the clairvoyant bound.

    \b
    Example: python -m benchmarks policies --app tm --trace poisson --seconds 40
    """  # noqa: D301 - click's own marks
    if beside and hops:
        raise click.UsageError("messages take no time in the reference's cases: leave out --hops, or --reference")
    chosen: Sequence[Dispatch] = dispatches or ("shared", "worker")
    wanted = tuple(dict.fromkeys(("pard", *(others or [name for name in NAMES if name not in _APART]), OURS)))
    if beside:
        reference = folder()
        if not (reference / TABLE).is_file():
            click.echo(f"skipped: there is no {TABLE} in {reference}; see SPILLWAY_REFERENCE", err=True)
            return
        found = measure_beside(reference, apps, wanted, chosen)
    else:
        each = itertools.product(seeds, names or traces(), apps or APPLICATIONS)
        cells = [Cell(app, trace, seconds, load, seed, hops) for seed, trace, app in each]
        found = measure(cells, wanted, chosen)
    told = list(found)
    tell([asdict(row) for row in told], _table(told), as_json=as_json)


def ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Geometric mean of first over second, over the pairs whose second is not next to nothing."""
    logs = [math.log(max(ours, _HALF) / theirs) for ours, theirs in pairs if theirs >= _LEAST]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def _table(found: Sequence[Row]) -> Table:
    lines, pairs = [], dict[str, list[tuple[float, float]]]()
    for row in found:
        name, best = row.best_other()
        ours, theirs = row.drop(OURS), row.drop("pard")
        pairs.setdefault(row.dispatch, []).append((ours, theirs))
        shown = [percent(each, 3) for each in (row.bound, theirs, best, ours, ours - row.bound, theirs - row.bound)]
        shown[2] += f" {name}"
        wasted = " / ".join(percent(row.outcomes[each][1], 3) for each in (OURS, "pard"))
        lines.append([row.app, row.trace, row.dispatch, *shown, wasted])
    notes = (
        f"{name}: geometric mean of spillway's drop rates over pard's {ratio(each):.3f}" for name, each in pairs.items()
    )
    columns = ("app", "trace", "dispatch", "bound", "pard", "best other", "spillway", "gap", "pard's", "invalid")
    return Table("Drop rates, gaps to the bound and invalid rates, %", columns, lines, tuple(notes))
