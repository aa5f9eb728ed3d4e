"""Drop rate and invalid rate over applications and traces (PARD, Fig. 8).

Every cell shows the mean over the seeds and the range. A real trace is run once: another seed would only change when
requests come within a second.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.output import Table, ratio, spread, times
from benchmarks.pard import paper
from benchmarks.pard.applications import APPLICATIONS
from benchmarks.pard.cases import ALL, Case, Setting, over_seeds, real_traces
from benchmarks.shapes import SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spillway.agents.sim.plan import Dispatch

    Cells = dict[str, dict[str, dict[str, list[float]]]]  # by application and trace, by policy

_BASELINES = ("naive", "nexus", "clipper++")


def measure(setting: Setting) -> dict[str, Any]:
    """Run every policy on every application and trace; under a queue per worker, and with one queue per stage."""
    worker = _cells(setting, "worker", setting.some(APPLICATIONS), setting.some(SHAPES, 1))
    if not setting.quick:
        worker |= _cells(replace(setting, seeds=setting.seeds[:1]), "worker", APPLICATIONS, real_traces())
    shared = _cells(setting, "shared", setting.some(("lv", "da"), 1), setting.some(("tweet-like", "wiki-like"), 1))
    return {"seconds": setting.seconds, "seeds": list(setting.seeds), "worker": worker, "shared": shared}


def _cells(setting: Setting, dispatch: Dispatch, apps: Iterable[str], traces: Sequence[str]) -> Cells:
    cases = {
        (app, trace, policy): Case(app, trace, policy, seconds=setting.seconds, dispatch=dispatch)
        for app in apps
        for trace in traces
        for policy in ALL
    }
    cells: Cells = {}
    for (app, trace, policy), figures in over_seeds(setting, cases).items():
        cells.setdefault(f"{app} {trace}", {})[policy] = {
            "drop": [each.drop for each in figures],
            "invalid": [each.invalid for each in figures],
        }
    return cells


def tables(result: dict[str, Any]) -> list[Table]:
    found = []
    for dispatch, name in (("worker", "a queue per worker"), ("shared", "one queue per stage")):
        cells: Cells = result[dispatch]
        found.append(_rates(cells, "drop", f"Drop rate in %, {name}: mean (least to most over seeds)"))
        found.append(_rates(cells, "invalid", f"Invalid rate in %, {name}: mean (least to most over seeds)"))
        found += [_ratios(cells, own, f"How {own} stands beside the baselines, {name}") for own in ("pard", "spillway")]
    return found


def _rates(cells: Cells, what: str, title: str) -> Table:
    rows = [(name, *(spread(cell[each][what]) for each in ALL)) for name, cell in cells.items()]
    return Table(title, ("cell", *ALL), rows)


def _ratios(cells: Cells, own: str, title: str) -> Table:
    rows, wins, losses = [], dict.fromkeys(_BASELINES, 0), dict.fromkeys(_BASELINES, 0)
    for name, cell in cells.items():
        row = [name]
        for other in _BASELINES:
            theirs, ours = (statistics.fmean(cell[each]["drop"]) for each in (other, own))
            wasted, own_wasted = (statistics.fmean(cell[each]["invalid"]) for each in (other, own))
            stands = standing(theirs, ours, paper.DROP[other])
            wins[other] += stands.startswith("wins")
            losses[other] += "loses" in stands
            row += [f"{times(ratio(theirs, ours))}, {stands}", times(ratio(wasted, own_wasted))]
        rows.append(row)
    columns = ["cell"]
    for other in _BASELINES:
        columns += [f"drop of {other}", "invalid"]
    score = "; ".join(f"{wins[other]} won, {losses[other]} lost against {other}" for other in _BASELINES)
    notes = (
        f"Cells by drop rate: {score}; the rest are even, within .05 points.",
        (
            f"Drop and invalid rates of the baselines as multiples of {own}'s; paper, PARD: drop {paper.DROP['nexus']} "
            f"(naive up to {paper.DROP['naive'].high:g}), invalid {paper.INVALID['nexus']} (naive up to "
            f"{paper.INVALID['naive'].high:g})."
        ),
    )
    return Table(title, tuple(columns), rows, notes)


def standing(other: float, own: float, wanted: paper.Range) -> str:
    """How a rate stands beside our own, and their ratio beside the paper's range; equal within .05 points is even."""
    value = ratio(other, own)
    if abs(other - own) <= paper.EVEN or value is None:
        return "even"
    if value < 1:
        return "**loses**"
    place = "below" if value < wanted.low else "in" if value <= wanted.high else "above"
    return f"wins, {place} the range"
