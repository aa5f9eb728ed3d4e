"""`spillway bench policies`: every policy on applications, traces and dispatches, beside the clairvoyant bound.

Ends in a verdict on each claim made of the policy `spillway`, and in a table that shows whether its constants depend on
the traces: each is chosen on all traces but one and applied to that one. The policies
of the paper synchronise once a second, as there; ours as often as `--period` says.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, get_args

import click
from rich.console import Console
from rich.table import Table

from agents.bench.pard.applications import APPLICATIONS
from agents.bench.policies_cells import Cell, bound_of, outcome
from agents.bench.policies_verdicts import OURS, Row, Verdict, left_out, verdicts
from agents.bench.policies_workloads import traces
from agents.cli.options import json_option
from agents.core.policies import POLICIES
from agents.sim.plan import Dispatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_APART = ("expired", OURS)  # not in the paper; ours, which comes last
_SETTINGS = ("spillway:quantile=.5", "spillway:quantile=.7", "spillway:quantile=.9", "spillway:overload=9")
_QUICK = (("tm", "lv"), ("tweet-like", "on-off", "poisson"), 40)


def measure(
    apps: Sequence[str], names: Sequence[str], dispatches: Sequence[Dispatch], load: float, seconds: int, period: float
) -> Iterator[Row]:
    """Run every policy, and the settings of ours, in every cell."""
    policies = (*(name for name in POLICIES if name not in _APART), OURS, *_SETTINGS)
    for trace in names:
        for app in apps:
            cell = Cell(app, trace, seconds, load)
            least = bound_of(cell)
            for dispatch in dispatches:
                found = {
                    policy: outcome(cell, policy, dispatch, period if policy.startswith(OURS) else 1.0)
                    for policy in policies
                }
                shares = {policy: (each.drop, each.invalid) for policy, each in found.items()}
                yield Row(app, trace, load, dispatch, least, shares)


def judged(rows: Sequence[Row]) -> list[Verdict]:
    """Hold the rows of each dispatch to the claims, and ours with one queue per stage to pard with one per worker."""
    by: dict[str, list[Row]] = {}
    for row in rows:
        by.setdefault(row.dispatch, []).append(row)
    found = [verdict for dispatch, some in by.items() for verdict in verdicts(some, dispatch)]
    if "shared" in by and "worker" in by:
        found += verdicts(by["shared"], "shared against pard on worker", by["worker"])
    return found


@click.command()
@click.option("--app", "apps", multiple=True, type=click.Choice(APPLICATIONS), help="[default: all]")
@click.option("--trace", "names", multiple=True, type=click.Choice(traces()), help="[default: all]")
@click.option("--dispatch", "dispatches", multiple=True, type=click.Choice(get_args(Dispatch)), help="How queued.")
@click.option("--load", default=1.2, show_default=True, help="Requests, over what the workers are planned for.")
@click.option("--seconds", type=click.IntRange(10), default=120, show_default=True, help="Length of each trace.")
@click.option("--period", default=0.1, show_default=True, help="Seconds between two synchronisations of spillway.")
@click.option("--quick", is_flag=True, help="Two applications, three traces, 40 s.")
@json_option
def policies(
    apps: tuple[str, ...],
    names: tuple[str, ...],
    dispatches: tuple[Dispatch, ...],
    load: float,
    seconds: int,
    period: float,
    *,
    quick: bool,
    as_json: bool,
) -> None:
    """Compare all policies with the clairvoyant bound, and hold `spillway` to its claims.

    \b
    Example: spillway bench policies --quick
    """  # noqa: D301 - click's own marks
    everything = (APPLICATIONS, traces(), seconds)
    some_apps, some_traces, length = _QUICK if quick else everything
    chosen = dispatches or ("worker", "shared")
    rows = []
    for row in measure(apps or some_apps, names or some_traces, chosen, load, length, period):
        rows.append(row)
        if as_json:
            click.echo(json.dumps(asdict(row)))
    found, left = judged(rows), left_out(rows, (OURS, *_SETTINGS))
    if as_json:
        click.echo(json.dumps({"verdicts": [asdict(each) for each in found], "left_out": left}))
        return
    for table in (_cells(rows), _claims(found), _left(left)):
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
