"""Drop rate, invalid rate and goodput over applications and traces (PARD, Figs. 8 and 10), and the worst windows.

Every cell shows the mean over the seeds and the range. A real trace is run once: another seed would only change when
requests come within a second.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agents.bench.pard import paper
from agents.bench.pard.applications import APPLICATIONS
from agents.bench.pard.cases import WINDOWS, Case, real_traces
from agents.bench.pard.output import MISSING, Table, percent, ratio, spread, standing, times
from agents.bench.pard.sections import ALL, BASELINES, OURS, Result, Setting, over_seeds
from producers.load.shapes import SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agents.bench.pard.cases import Figures
    from agents.sim.plan import Dispatch

    Cells = dict[str, dict[str, dict[str, Any]]]  # by application and trace, by policy


def measure(setting: Setting) -> Result:
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
        for policy in setting.policies()
    }
    cells: Cells = {}
    for (app, trace, policy), figures in over_seeds(setting, cases).items():
        cells.setdefault(f"{app} {trace}", {})[policy] = _cell(figures)
    return cells


def _cell(figures: list[Figures]) -> dict[str, Any]:
    return {
        "drop": [each.drop for each in figures],
        "invalid": [each.invalid for each in figures],
        "goodput": [each.goodput for each in figures],
        "hard": [each.hard_good / each.hard_requests if each.hard_requests else 1.0 for each in figures],
        "late": [each.late for each in figures],
        "worst": {width: [each.worst[width] for each in figures] for width in figures[0].worst},
        "drops": {stage: sum(each.drops[stage] for each in figures) for stage in figures[0].drops},
        "workers": figures[0].workers,
    }


# Tables ------------------------------------------------------------------------------------------------------------


def tables(result: Result) -> list[Table]:
    found = []
    for dispatch, name in (("worker", "a queue per worker"), ("shared", "one queue per stage")):
        cells: Cells = result[dispatch]
        found.append(_rates(cells, "drop", f"Drop rate in %, {name}: mean (least to most over seeds)"))
        found.append(_rates(cells, "invalid", f"Invalid rate in %, {name}: mean (least to most over seeds)"))
        if dispatch == "worker":
            found.append(_rates(cells, "goodput", "Goodput per second, a queue per worker: mean", rates=False))
            found.append(_rates(cells, "hard", "Good answers in the seconds that force drops, in % of their requests"))
        there = [own for own in OURS if any(own in cell for cell in cells.values())]
        found += [_ratios(cells, own, f"How {own} stands beside the baselines, {name}") for own in there]
    return found


def _rates(cells: Cells, what: str, title: str, *, rates: bool = True) -> Table:
    rows = [(name, *(_shown(cell, policy, what, rates=rates) for policy in ALL)) for name, cell in cells.items()]
    return Table(title, ("cell", *ALL), rows)


def _shown(cell: dict[str, Any], policy: str, what: str, *, rates: bool) -> str:
    if policy not in cell:
        return MISSING
    figures = cell[policy][what]
    return spread(figures) if rates else f"{statistics.fmean(figures):.1f}"


def mean_of(cell: dict[str, Any], policy: str, what: str) -> float:
    return statistics.fmean(cell[policy][what])


def _ratios(cells: Cells, own: str, title: str) -> Table:
    rows, wins, losses = [], dict.fromkeys(BASELINES, 0), dict.fromkeys(BASELINES, 0)
    for name, cell in cells.items():
        if own not in cell:
            continue
        row = [name]
        for other in BASELINES:
            theirs, ours = mean_of(cell, other, "drop"), mean_of(cell, own, "drop")
            invalid = ratio(mean_of(cell, other, "invalid"), mean_of(cell, own, "invalid"))
            stands = standing(theirs, ours, paper.DROP[other])
            wins[other] += stands.startswith("wins")
            losses[other] += "loses" in stands
            row += [f"{times(ratio(theirs, ours))}, {stands}", times(invalid)]
            if other != "naive":
                more = ratio(mean_of(cell, own, "hard"), mean_of(cell, other, "hard"))
                row.append("-" if more is None else f"{100 * (more - 1):+.1f} %")
        rows.append(row)
    columns = ["cell"]
    for other in BASELINES:
        columns += [f"drop of {other}", "invalid"]
        if other != "naive":
            columns.append("goodput")
    score = "; ".join(f"{wins[other]} won, {losses[other]} lost against {other}" for other in BASELINES)
    notes = (
        f"Cells by drop rate: {score}; the rest are even, within .05 points.",
        (
            f"Drop and invalid rates of the baselines as multiples of {own}'s; paper, PARD: drop {paper.DROP['nexus']} "
            f"(naive up to {paper.DROP['naive'].high:g}), invalid {paper.INVALID['nexus']} (naive up to "
            f"{paper.INVALID['naive'].high:g}). Goodput: {own}'s over the baseline's in the seconds that force drops; "
            f"paper {100 * paper.GOODPUT.low:+.0f} to {100 * paper.GOODPUT.high:+.0f} %."
        ),
    )
    return Table(title, tuple(columns), rows, notes)


# The worst windows -------------------------------------------------------------------------------------------------


def measure_windows(setting: Setting) -> Result:
    """Find the worst windows of lv on the shapes; the cells are the matrix's own."""
    cells = _cells(setting, "worker", ["lv"], setting.some(SHAPES, 1))
    widths = [f"{width:g}" for width in WINDOWS]
    return {"widths": widths, "cells": {name: _worst(cell) for name, cell in cells.items()}}


def _worst(cell: dict[str, dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    return {policy: figures["worst"] for policy, figures in cell.items()}


def window_tables(result: Result) -> list[Table]:
    """A table for each cell, and how much lower the worst windows are."""
    found = []
    for name, cell in result["cells"].items():
        rows = []
        for width in result["widths"]:
            shown = (spread(cell[each][width], 1) if each in cell else MISSING for each in ALL)
            rows.append((f"{width} s", *shown, *(_lower(cell, own, width) for own in OURS)))
        columns = ("window", *ALL, *(f"{own} lower than nexus, clipper++" for own in OURS))
        note = f"Paper: {100 * paper.WORST.low:.0f} to {100 * paper.WORST.high:.0f} % lower than the baselines."
        found.append(Table(f"{name}: drop rate in % of the worst window", columns, rows, (note,)))
    return found


def _lower(cell: dict[str, dict[str, list[float]]], own: str, width: str) -> str:
    if own not in cell:
        return MISSING
    base = statistics.fmean(cell[own][width])
    changes = []
    for other in ("nexus", "clipper++"):
        value = statistics.fmean(cell[other][width]) if other in cell else 0.0
        changes.append(f"{percent(1 - base / value, 0)} %" if value > 0 else "-")
    return ", ".join(changes)
