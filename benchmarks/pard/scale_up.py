"""Replicas added by load at run time, with cold starts (PARD, section 5.1): drop rates during the scale-up.

The pipeline begins with the workers that the first seconds need and follows the load (`agents.sim.scaling`). Every
policy has the same workers at every moment, as the rate of requests decides, not what a policy lets through.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from agents.bench.pard.cases import SCALING, Case, good_of, set_up, simulated
from agents.bench.pard.output import MISSING, Table, ratio, spread, times
from agents.bench.pard.sections import ALL, Result, Setting, over_seeds
from agents.sim.observe import Observer
from producers.load.shapes import SHAPES


def measure(setting: Setting) -> Result:
    """Run lv and tm while they are scaled; keep the course of one run."""
    cases = {
        (app, trace, policy): Case(app, trace, policy, seconds=setting.seconds, scaling=True)
        for app in setting.some(("lv", "tm"), 1)
        for trace in setting.some(SHAPES, 1)
        for policy in setting.policies()
    }
    cells: dict[str, dict[str, Any]] = {}
    for (app, trace, policy), figures in over_seeds(setting, cases).items():
        cells.setdefault(f"{app} {trace}", {})[policy] = {
            "drop": [each.drop for each in figures],
            "invalid": [each.invalid for each in figures],
            "worst": [each.worst["10"] for each in figures],
        }
    course = {
        policy: _course(Case("lv", "tweet-like", policy, seconds=setting.seconds, scaling=True))
        for policy in setting.policies()
    }
    return {"cold_start": SCALING.cold_start, "use": SCALING.use, "cells": cells, "course": course}


def _course(case: Case) -> dict[str, Any]:
    """Requests and losses in each second, and when the first stage had how many workers."""
    observer = Observer(every=1_000_000)
    result = simulated(case, set_up(case), observer)
    second = result.due.astype(np.int64)
    sizes = [(at, workers) for at, stage, workers in observer.sizes if stage == next(iter(observer.stages))]
    return {
        "requests": np.bincount(second, minlength=case.seconds).tolist(),
        "lost": np.bincount(second[~good_of(result)], minlength=case.seconds).tolist(),
        "workers": [[round(at, 3), workers] for at, workers in sizes],
    }


def tables(result: Result) -> list[Table]:
    """Drop rates, and the worst ten seconds."""
    found = []
    for what, title in (("drop", "Drop rate in %"), ("invalid", "Invalid rate in %"), ("worst", "Worst 10 s in %")):
        rows = []
        for name, cell in result["cells"].items():
            base = sum(cell["pard"][what]) / len(cell["pard"][what])
            shown = (spread(cell[each][what]) if each in cell else MISSING for each in ALL)
            ratios = (ratio(sum(cell[each][what]) / len(cell[each][what]), base) for each in ("nexus", "clipper++"))
            rows.append((name, *shown, *(times(each) for each in ratios)))
        columns = ("cell", *ALL, "nexus / pard", "clipper++ / pard")
        found.append(Table(f"{title} while workers are added by load", columns, rows))
    note = (
        f"Cold start {result['cold_start']:g} s; a worker is planned to {100 * result['use']:.0f} % of its throughput."
    )
    return [*found[:-1], Table(found[-1].title, found[-1].columns, found[-1].rows, (note,))]
