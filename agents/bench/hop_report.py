"""The table of `bench hop`, and whether the figures that the project has set itself are reached."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from rich.table import Table

from agents.bench.hop_contest import DESCRIPTIONS, OURS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_COLUMNS = {
    "p50_100": "100/s p50 ms",
    "p99_100": "p99 ms",
    "cpu_100": "CPU us",
    "p50_1000": "1000/s p50 ms",
    "p99_1000": "p99 ms",
    "cpu_1000": "CPU us",
    "p99_burst": "burst p99 ms",
    "p50_after": "after: p50 ms",
    "p99_after": "p99 ms",
    "drained": "drained/s",
    "cpu_drained": "CPU us",
}
_P50_RATIO, _P50_MS, _BURST_SHARE, _DRAINED_RATIO, _AFTER_RATIO = 1.5, 5.0, 0.5, 2.2, 2.0


def medians(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        name: {figure: statistics.median(run[figure] for run in of_name) for figure in _COLUMNS}
        for name, of_name in runs.items()
        if of_name
    }


def table(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> Table:
    repeats = max(len(of_name) for of_name in runs.values())
    drawn = Table(title=f"One hop, median of {repeats} interleaved runs (least to most below)")
    drawn.add_column("")
    for heading in _COLUMNS.values():
        drawn.add_column(heading, justify="right")
    for name, row in medians(runs).items():
        cells = []
        for figure, value in row.items():
            all_values = [run[figure] for run in runs[name]]
            cells.append(f"{_number(value)}\n[dim]{_number(min(all_values))}-{_number(max(all_values))}[/dim]")
        drawn.add_row(f"{name}\n[dim]{DESCRIPTIONS[name]}[/dim]", *cells)
    return drawn


def verdicts(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, bool]:
    """Say which of the figures are reached, as far as who they are measured against has run."""
    found = medians(runs)
    if OURS not in found:
        return {}
    ours, verdict = found[OURS], {}
    raw, plain = found.get("aiokafka"), found.get("faust")
    for rate in ("100", "1000"):
        p50 = ours[f"p50_{rate}"]
        allowed = max(_P50_MS, _P50_RATIO * raw[f"p50_{rate}"]) if raw else _P50_MS
        verdict[f"p50 at {rate}/s: {p50:.1f} ms, at most {allowed:.1f} ms"] = p50 <= allowed
    usual, after = ours["p50_100"], ours["p50_after"]
    verdict[f"p50 after a burst: {after:.1f} ms, usually {usual:.1f} ms"] = after <= _AFTER_RATIO * usual
    if plain:
        burst, limit = ours["p99_burst"], _BURST_SHARE * plain["p99_burst"]
        verdict[f"p99 of a burst: {burst:.0f} ms, at most {limit:.0f} ms (half of Faust's)"] = burst <= limit
        drained, least = ours["drained"], _DRAINED_RATIO * plain["drained"]
        verdict[f"drained: {drained:.0f}/s, at least {least:.0f}/s (2.2 x Faust)"] = drained >= least
    return verdict


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"  # noqa: PLR2004 - three digits are enough
