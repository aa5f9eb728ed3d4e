"""Our simulation beside an independent one, written by others from the PARD paper alone.

The reference lies outside the repository: `pard-reference.csv` with its README and arrivals, and the pipelines in
`../apps` beside it. A cell is one policy on one pipeline and one trace, with a queue for every worker. It agrees where
drop rate and invalid rate are each within max(5 % of theirs, .05 points) for the policies that estimate nothing or
take a fixed order, and within max(10 %, .1 points) for the others.
"""

from __future__ import annotations

import csv
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarks.output import Table, tell
from benchmarks.pard.applications import from_artifact
from benchmarks.pard.rivals import setting_of
from spillway.agents.cli.options import json_option
from spillway.agents.sim.simulation import simulate
from spillway.producers.load.traces import arrivals

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from spillway.topology.load import Pipeline

BESIDE = Path(__file__).resolve().parents[1].parent / "shared" / "reference"
TABLE = "pard-reference.csv"
_TIGHT = frozenset({"naive", "nexus", "clipper++", "fcfs", "lbf", "hbf"})


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy on one pipeline and trace, ours and theirs; rates in percent."""

    trace: str
    app: str
    policy: str
    drop: float
    drop_reference: float
    invalid: float
    invalid_reference: float
    visits_per_second: int

    @property
    def agrees(self) -> bool:
        return self._near(self.drop, self.drop_reference) and self._near(self.invalid, self.invalid_reference)

    @property
    def verdict(self) -> str:
        return "agrees" if self.agrees else "DIFFERS"

    def _near(self, ours: float, theirs: float) -> bool:
        share, points = (0.05, 0.05) if self.policy in _TIGHT else (0.1, 0.1)
        return abs(ours - theirs) <= max(share * theirs, points)


def folder() -> Path:
    return Path(os.environ.get("SPILLWAY_REFERENCE") or BESIDE)


def rows(reference: Path, policies: Sequence[str] = (), cases: Sequence[str] = ()) -> list[dict[str, str]]:
    """Give the reference's rows of these policies and cases (app, trace, or app@trace); of all where none is named."""
    with (reference / TABLE).open() as lines:
        return [
            row
            for row in csv.DictReader(lines)
            if (not policies or row["policy"] in policies)
            and (not cases or {row["app"], row["trace"], f"{row['app']}@{row['trace']}"} & {*cases})
        ]


def case(reference: Path, app: str, trace: str, workers: str) -> tuple[Pipeline, NDArray[np.float64], list[int]]:
    """Read a case: its pipeline, its arrivals, and its workers by stage."""
    pipeline = from_artifact(reference.parent / "apps" / f"{app}.json")
    return pipeline, arrivals(reference / f"{trace}.csv.gz"), [int(count) for count in workers.split()]


def compare(reference: Path, row: dict[str, str]) -> Cell:
    """Simulate what a row says and hold the result to it."""
    pipeline, arrivals, workers = case(reference, row["app"], row["trace"], row["workers"])
    before = time.process_time()
    result = simulate(pipeline, arrivals, workers=workers, dispatch="worker", policy=setting_of(row["policy"]))
    took = time.process_time() - before
    report = result.report(row["trace"])
    return Cell(
        trace=row["trace"],
        app=row["app"],
        policy=row["policy"],
        drop=round(100 * report.drop_rate, 4),
        drop_reference=float(row["drop_pct"]),
        invalid=round(100 * report.invalid_rate, 4),
        invalid_reference=float(row["invalid_pct"]),
        visits_per_second=round(result.visits / took),
    )


@click.command()
@click.option("--policy", "policies", multiple=True, metavar="NAME", help="[default: all of the reference]")
@click.option("--case", "cases", multiple=True, metavar="APP|TRACE|APP@TRACE", help="[default: all]")
@click.option("--folder", "reference", type=click.Path(path_type=Path), default=folder, help="Of the reference.")
@json_option
def reference(reference: Path, policies: tuple[str, ...], cases: tuple[str, ...], *, as_json: bool) -> int:
    """Hold the simulator to an independent one; exit 1 where a cell is outside the tolerance.

    \b
    Example: python -m benchmarks reference --policy pard --case lv
    """  # noqa: D301 - click's own marks
    if not (reference / TABLE).is_file():
        click.echo(f"skipped: there is no {TABLE} in {reference}; see --folder and SPILLWAY_REFERENCE", err=True)
        return 0
    wanted = rows(reference, policies, cases)
    if not wanted:
        raise click.UsageError(f"{reference / TABLE} has no row of that policy and case")
    cells = []
    for number, row in enumerate(wanted, start=1):
        cells.append(cell := compare(reference, row))
        click.echo(f"{number}/{len(wanted)} {cell.policy} {cell.app}@{cell.trace}: {cell.verdict}", err=True)
    tell([{**asdict(cell), "verdict": cell.verdict} for cell in cells], _table(cells), as_json=as_json)
    return 0 if all(cell.agrees for cell in cells) else 1


def _table(cells: Sequence[Cell]) -> Table:
    rows = []
    for cell in cells:
        pairs = ((cell.drop, cell.drop_reference), (cell.invalid, cell.invalid_reference))
        shown = [text for ours, theirs in pairs for text in (f"{ours:.3f}", f"{theirs:.3f}", f"{ours - theirs:+.3f}")]
        rows.append([cell.policy, cell.app, cell.trace, *shown, f"{cell.visits_per_second:,}", cell.verdict])
    figures = ("drop", "theirs", "diff", "invalid", "theirs", "diff", "visits/s", "verdict")
    note = f"{sum(cell.agrees for cell in cells)} of {len(cells)} cells agree"
    return Table("ours / the independent reference, percent", ("policy", "app", "trace", *figures), rows, (note,))
