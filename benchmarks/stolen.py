"""How much of a virtual machine's processors its host gives to others while something is measured.

Runs that are compared with each other may have been given less by half, one than the other, and nothing else shows it.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.output import Table

_NOTHING = 0.02  # a share that is not worth a word
MUCH = 0.1  # one beyond which runs beside each other cannot be compared


class StolenMeter:
    """Counts from when it is made. Where the system does not tell (it is Linux that does), nothing is stolen."""

    def __init__(self) -> None:
        self._stolen, self._all = _times()

    def share(self) -> float:
        stolen, everything = _times()
        return round((stolen - self._stolen) / max(everything - self._all, 1e-9), 4)


def with_note(tables: Sequence[Table], result: Mapping[str, Any]) -> list[Table]:
    """Tables of a section's result, the first of which tells what was stolen of its `rows`, or of it as a whole."""
    rows = result.get("rows", ())
    shares = [row["stolen"] for row in rows if "stolen" in row] or [result.get("stolen", 0.0)]
    worst = max(shares)
    if worst < _NOTHING or not tables:
        return list(tables)
    verdict = "; runs that lost so much cannot be compared with each other" if worst > MUCH else ""
    note = (
        f"The machine's host gave {statistics.median(shares):.0%} of its processors to others, "
        f"{worst:.0%} in the worst run{verdict}."
    )
    first, *others = tables
    return [replace(first, notes=(*first.notes, note)), *others]


def _times() -> tuple[float, float]:
    times = psutil.cpu_times()
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted in user and nice, too
    return getattr(times, "steal", 0.0), sum(times) - guest
