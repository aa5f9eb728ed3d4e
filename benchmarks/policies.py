"""`spillway bench policies`: every policy on applications, traces and dispatches, beside the clairvoyant bound.

Ends in a verdict on each claim made of the policy `spillway`, and in a table that shows whether its constants depend on
the traces: each is chosen on all traces but one and applied to that one. The policies of the paper synchronise once a
second, as there; ours as often as `--period` says. `--reference` takes the cases of the independent reference instead.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, get_args

import click
from rich.console import Console
from rich.table import Table

from agents.bench import policies_reference
from agents.bench.pard.applications import APPLICATIONS
from agents.bench.policies_cells import Cell, bound_of, outcome
from agents.bench.policies_verdicts import OURS, THEIRS, Row, Verdict, left_out, verdicts
from agents.bench.policies_workloads import DEVELOPED, DEVELOPMENT, traces
from agents.bench.reference import TABLE, folder
from agents.cli.options import json_option
from agents.core.policies import POLICIES
from agents.sim.plan import Dispatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_APART = ("expired", OURS)  # not in the paper; ours, which comes last
_SETTINGS = tuple(
    f"spillway:{constant}"
    for constant in (
        *("quantile=.8", "quantile=.95", "at_first=.5", "at_first=.9", "lasting=.2", "lasting=1"),
        *("short=.9", "short=.99", "deep=.02", "deep=.1", "long=1", "long=5"),
    )
)
_QUICK = (("tm", "lv"), ("wiki-like", "gamma-3", "poisson"), 40)


def measure(
    cells: Sequence[Cell], policies: Sequence[str], dispatches: Sequence[Dispatch], period: float
) -> Iterator[Row]:
    for cell in cells:
        least = bound_of(cell)
        for dispatch in dispatches:
            found = {
                policy: outcome(cell, policy, dispatch, period if policy.startswith(OURS) else 1.0)
                for policy in policies
            }
            shares = {policy: (each.drop, each.invalid) for policy, each in found.items()}
            yield Row(cell.app, cell.trace, cell.load, dispatch, least, shares, cell.seed)


def judged(rows: Sequence[Row]) -> list[Verdict]:
    """Hold the rows to the claims: all, and apart those on which it was developed and those on which it was not."""
    halves = {
        "": rows,
        "development, ": [row for row in rows if row.trace in DEVELOPMENT and row.app in DEVELOPED and not row.seed],
        "held out, ": [row for row in rows if row.trace not in DEVELOPMENT],
    }
    found = []
    for half, some in halves.items():
        if half and len(some) in {0, len(rows)}:
            continue
        by: dict[str, list[Row]] = {}
        for row in some:
            by.setdefault(row.dispatch, []).append(row)
        for dispatch, these in by.items():
            found += verdicts(these, f"{half}{dispatch}")
        if "shared" in by and "worker" in by:
            found += verdicts(by["shared"], f"{half}shared against pard on worker", by["worker"])
    return found


@click.command()
@click.option("--app", "apps", multiple=True, type=click.Choice(APPLICATIONS), help="[default: all]")
@click.option("--trace", "names", multiple=True, type=click.Choice(traces()), help="[default: all]")
@click.option("--dispatch", "dispatches", multiple=True, type=click.Choice(get_args(Dispatch)), help="How queued.")
@click.option("--policy", "others", multiple=True, metavar="NAME", help="Beside pard and spillway.  [default: all]")
@click.option("--load", default=1.0, show_default=True, help="Requests, over what the workers are planned for.")
@click.option("--seconds", type=click.IntRange(10), default=120, show_default=True, help="Length of each trace.")
@click.option("--seed", "seeds", multiple=True, type=int, default=(0,), show_default=True, help="Of the arrivals.")
@click.option("--period", default=0.1, show_default=True, help="Seconds between two synchronisations of spillway.")
@click.option("--hops", is_flag=True, help="Let every message take 3 to 20 ms from stage to stage.")
@click.option("--reference", "beside", is_flag=True, help="The cases of the independent reference.")
@click.option("--constants/--no-constants", default=True, help="Run spillway with other constants, too.")
@click.option("--quick", is_flag=True, help="Two applications, three traces, 40 s.")
@json_option
def policies(
    apps: tuple[str, ...],
    names: tuple[str, ...],
    dispatches: tuple[Dispatch, ...],
    others: tuple[str, ...],
    load: float,
    seconds: int,
    seeds: tuple[int, ...],
    period: float,
    *,
    hops: bool,
    beside: bool,
    constants: bool,
    quick: bool,
    as_json: bool,
) -> None:
    """Compare all policies with the clairvoyant bound, and hold `spillway` to its claims.

    \b
    Example: spillway bench policies --quick
    """  # noqa: D301 - click's own marks
    if beside and hops:
        raise click.UsageError("messages take no time in the reference's cases: leave out --hops, or --reference")
    chosen: Sequence[Dispatch] = dispatches or ("shared", "worker")
    wanted = tuple(dict.fromkeys((THEIRS, *(others or [name for name in POLICIES if name not in _APART]), OURS)))
    settings = _SETTINGS if constants and not beside else ()
    if beside:
        reference = folder()
        if not (reference / TABLE).is_file():
            click.echo(f"skipped: there is no {TABLE} in {reference}; SPILLWAY_REFERENCE names another", err=True)
            return
        found = policies_reference.measure(reference, apps, wanted, chosen, period)
    else:
        some_apps, some_traces, length = _QUICK if quick else (APPLICATIONS, traces(), seconds)
        cells = [
            Cell(app, trace, length, load, seed, hops)
            for seed in seeds
            for trace in names or some_traces
            for app in apps or some_apps
        ]
        found = measure(cells, (*wanted, *settings), chosen, period)
    _tell(found, settings, as_json=as_json)


def _tell(found: Iterable[Row], settings: Sequence[str], *, as_json: bool) -> None:
    rows = []
    for row in found:
        rows.append(row)
        if as_json:
            click.echo(json.dumps(asdict(row)))
    claims, left = judged(rows), left_out(rows, (OURS, *settings)) if settings else []
    if as_json:
        click.echo(json.dumps({"verdicts": [asdict(each) for each in claims], "left_out": left}))
        return
    for table in (_cells(rows), _claims(claims), *([_left(left)] if left else [])):
        Console(width=150).print(table)


def _cells(rows: Sequence[Row]) -> Table:
    table = Table("app", "trace", "dispatch", "bound", "pard", "best other", "spillway", "gap", "pard's", "invalid")
    for row in rows:
        name, best = row.best_other()
        ours, theirs = row.drop(OURS), row.drop("pard")
        figures: list[Any] = [row.bound, theirs, f"{100 * best:.3f} {name}", ours, ours - row.bound, theirs - row.bound]
        texts = [each if isinstance(each, str) else f"{100 * each:.3f}" for each in figures]
        wasted = f"{100 * row.outcomes[OURS][1]:.3f} / {100 * row.outcomes['pard'][1]:.3f}"
        table.add_row(row.app, row.trace, row.dispatch, *texts, wasted, style=None if row.near_best() else "red")
    return table


def _claims(found: Sequence[Verdict]) -> Table:
    table = Table("claim", "measured", "")
    for each in found:
        table.add_row(each.claim, each.measured, "holds" if each.holds else "[red]DOES NOT HOLD")
    return table


def _left(left: Sequence[tuple[str, str, float, float]]) -> Table:
    table = Table("trace left out", "chosen on the others", "over pard there", "best setting there")
    for trace, chosen, ratio, best in left:
        table.add_row(trace, chosen, f"{ratio:.3f}", f"{best:.3f}")
    return table


if __name__ == "__main__":
    policies()
