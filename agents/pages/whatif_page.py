"""A study of recorded traffic as a page compares it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.pages.comparison import Curve
from agents.pages.comparison_page import Comparison
from agents.whatif import table

if TYPE_CHECKING:
    from agents.whatif.study import Row, Study


def compared(found: Study) -> Comparison:
    headings, *rows = table.cells(found)
    return Comparison(
        title=f"{found.pipeline}: what if",
        subtitle=f"{found.traffic} · dispatch {found.dispatch} · {1000 * found.hop:.1f} ms a hop",
        headings=headings,
        rows=rows,
        curves=[_curve(found, row) for row in found.all_rows],
        slo=float(max(row.fates.budget.max(initial=0.0) for row in found.all_rows)),
        foot=table.foot(found),
        emulated=found.emulated,
        verdict=found.verdict,
    )


def _curve(found: Study, row: Row) -> Curve:
    fates = row.fates
    measured = row is found.recorded
    return Curve(_name(found, row), fates.due, fates.latency, fates.predicted, fates.good, measured=measured)


def _name(found: Study, row: Row) -> str:
    if row in (found.recorded, found.predicted):
        return f"{row.label}: {row.policy}"
    return row.policy if row.label == "as the file says" else f"{row.policy} {row.label}"
