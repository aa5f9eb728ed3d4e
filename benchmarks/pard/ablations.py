"""Every ablation on lv-tweet beside the paper's ratio (PARD, section 5.3, Fig. 11)."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.output import MISSING, Table, percent, ratio, spread, times
from benchmarks.pard import paper
from benchmarks.pard.cases import ALL, Case, Setting, over_seeds

if TYPE_CHECKING:
    from benchmarks.pard.cases import Figures

ABLATIONS = ("pard", *paper.ABLATIONS, "nexus-split")
TRACE = "tweet-like"


def measure(setting: Setting) -> dict[str, Any]:
    """Run PARD, its ablations and the others on lv with our stand-in for the Twitter trace, under both dispatches."""
    names = setting.some((*ABLATIONS, *(each for each in ALL if each != "pard")), 3)
    found: dict[str, Any] = {}
    for dispatch in ("worker", "shared"):
        cases = {name: Case("lv", TRACE, name, seconds=setting.seconds, dispatch=dispatch) for name in names}
        found[dispatch] = {name: _of(figures) for name, figures in over_seeds(setting, cases).items()}
    return found


def _of(figures: list[Figures]) -> dict[str, Any]:
    return {
        "drop": [each.drop for each in figures],
        "invalid": [each.invalid for each in figures],
        "drops": {stage: sum(each.drops[stage] for each in figures) for stage in figures[0].drops},
    }


def tables(result: dict[str, Any]) -> list[Table]:
    names = {"worker": "a queue per worker", "shared": "one queue per stage"}
    return [_table(result[dispatch], f"lv, {TRACE}, {name}") for dispatch, name in names.items()]


def _table(found: dict[str, dict[str, Any]], title: str) -> Table:
    pard = found["pard"]
    base, base_invalid = statistics.fmean(pard["drop"]), statistics.fmean(pard["invalid"])
    rows = []
    for name in (*ABLATIONS, *(each for each in ALL if each not in ABLATIONS)):
        if name not in found:
            rows.append((name, *[MISSING] * 8))
            continue
        each = found[name]
        drop, invalid = statistics.fmean(each["drop"]), statistics.fmean(each["invalid"])
        wanted, wanted_invalid = paper.ABLATIONS.get(name, (None, None))
        total = sum(each["drops"].values())
        first_two = sum(list(each["drops"].values())[:2]) / total if total else 0.0
        rows.append(
            (
                name,
                spread(each["drop"]),
                times(ratio(drop, base)),
                times(wanted),
                spread(each["invalid"]),
                times(ratio(invalid, base_invalid)),
                times(wanted_invalid),
                f"{100 * first_two:.0f} %",
                word(drop, base, wanted),
            )
        )
    columns = ("policy", "drop %", "of PARD's", "paper", "invalid %", "of PARD's", "paper", "first two", "word")
    note = "`first two`: the share of its drops in the first two of the five stages (late answers are not among them)."
    return Table(title, columns, rows, (note,))


def word(drop: float, base: float, wanted: float | None) -> str:
    """Say whether a drop rate lies on the side of PARD's where the paper has it; more than .05 points count."""
    if wanted is None:
        return ""
    if abs(drop - base) <= paper.EVEN:
        return f"no difference here ({percent(drop - base)} points); the paper has {times(wanted)}"
    if (drop > base) != (wanted > 1):
        return f"**the sign differs**: {percent(base - drop)} points better than PARD here"
    here = ratio(drop, base)
    if here is None:
        return "as in the paper; PARD itself drops nothing"
    return "as in the paper" + (", more so" if abs(here - 1) > abs(wanted - 1) else ", less so")
