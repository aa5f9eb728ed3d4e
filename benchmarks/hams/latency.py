"""Latency and throughput of each service in each mode over bare, in turn (HAMS, figures 10 to 12, Table I)."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks.hams.cells import Cell, Measured, measure
from benchmarks.hams.services import SERVICES, label
from benchmarks.hams.warm import warm
from benchmarks.output import Table, median_spread
from benchmarks.stolen import MUCH

if TYPE_CHECKING:
    from benchmarks.hams.setting import Setting

BATCH = 64
_BASES = ("none", "nspb", "nspb")  # what each column of `_together` compares with


def measure_latency(setting: Setting) -> dict[str, Any]:
    return _measure(setting, "latency", setting.services, (BATCH,))


def measure_emulated(setting: Setting) -> dict[str, Any]:
    """Every service whose computing is as long as in the paper."""
    names = tuple(name for name in setting.services if SERVICES[name].paces)
    return _measure(setting, "emulated", names, (BATCH,), emulated=True)


def measure_sizes(setting: Setting) -> dict[str, Any]:
    return _measure(setting, "sizes", setting.services, setting.sizes)


def _measure(
    setting: Setting, section: str, names: tuple[str, ...], sizes: tuple[int, ...], *, emulated: bool = False
) -> dict[str, Any]:
    """Repeat after repeat; what compares stands next to each other. What was measured before is not again.

    Who comes early finds a broker whose code is compiled less. So one run is made for nothing at first, and every
    second repeat has its modes in the opposite order, but for the bare one, which comes first and tells the interval.
    """
    rows = setting.progress.rows(section)
    warm(setting.cluster)
    first = True
    known = {(row["repeat"], row["service"], row["batch"], row["mode"]): row for row in rows}
    for repeat in range(setting.repeats):
        for name in names:
            for size in sizes:
                interval = None
                for mode in _in_turn(setting.modes, repeat):
                    row = known.get((repeat, name, size, mode))
                    if row is None:
                        if first:
                            first = False
                            measure(setting, Cell(SERVICES[name], "nspb", size, emulated), None)
                        row = _row(setting, Cell(SERVICES[name], mode, size, emulated), repeat, interval)
                        rows.append(row)
                        setting.progress.keep(section, rows)
                    interval = interval or row["interval"]
    return {"rows": rows}


def _in_turn(modes: tuple[str, ...], repeat: int) -> tuple[str, ...]:
    bare, *others = modes
    return (bare, *(others if repeat % 2 == 0 else reversed(others)))


def _row(setting: Setting, cell: Cell, repeat: int, interval: float | None) -> dict[str, Any]:
    """One run; where the machine's host took much of it, the best of those that were made again."""
    runs: list[Measured] = []
    while len(runs) <= setting.again and all(run.stolen > MUCH for run in runs):
        found = measure(setting, cell, interval)
        runs.append(found)
        setting.say(
            f"{repeat + 1}/{setting.repeats} {cell.name}: p50 {found.p50:.1f} ms, p99 {found.p99:.1f} ms, "
            f"{found.throughput:.1f}/s"
            + (f"; the host took {found.stolen:.0%} of the processors" if found.stolen > MUCH else "")
        )
    found = min(runs, key=lambda run: run.stolen)
    about = {"service": cell.service.name, "mode": cell.mode, "batch": cell.batch, "repeat": repeat}
    how = {"emulated": cell.emulated, "bursts": setting.bursts, "warm": "served"}
    return about | how | asdict(found)


def tables(result: dict[str, Any]) -> list[Table]:
    """Latency over bare, and throughput over bare; medians of the repeats, each with its own bare."""
    rows = result["rows"]
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    order = list(SERVICES)
    cells = sorted({(row["service"], row["batch"]) for row in rows}, key=lambda cell: (order.index(cell[0]), cell[1]))
    emulated = any(row["emulated"] for row in rows)
    word = "emulated" if emulated else "the services' own code"
    columns = ("service", "batch", "bare p50, ms", *(label(mode) for mode in modes if mode != "none"))
    latency = [_line(rows, service, batch, modes, "p50") for service, batch in cells]
    through = [_line(rows, service, batch, modes, "throughput") for service, batch in cells]
    beside = [_line(rows, service, batch, modes, "p50", "nspb") for service, batch in cells]
    paper = [line for service in dict(cells) if (line := _paper_line(service, modes)) is not None]
    made = [
        Table(f"Latency over bare, median query ({word})", columns, latency, _notes(rows)),
        Table(f"Throughput over bare ({word})", (*columns[:2], "bare, queries/s", *columns[3:]), through),
    ]
    if "nspb" in modes:
        own = (*columns[:2], "nspb p50, ms", *(label(mode) for mode in modes if mode != "nspb"))
        made.append(Table(f"Latency over nspb, median query ({word})", own, beside))
        made.append(_together(rows, modes))
    if paper:
        made.append(Table("The paper's latency over HAMS (Table I)", ("service", *map(label, modes)), paper))
    return made


def _notes(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    repeats, bursts = ({row[what] for row in rows if what in row} for what in ("repeat", "bursts"))
    said = [
        "Median over the repeats, each relative to its own bare run (least to most).",
        f"Runs of {' or '.join(map(str, sorted(bursts))) or 'some'} bursts, repeats: {len(repeats)}.",
    ]
    if all(row.get("warm") for row in rows):
        said.append("The broker first wrote 1.5 GB, so that its code was compiled.")
    if all(row.get("warm") == "served" for row in rows):
        said.append("One run was discarded first; every second repeat has the modes in the opposite order.")
    if any(row["emulated"] for row in rows):
        said.append("Emulated: how long a stage computes (see `benchmarks/hams/services.py`); all else is real.")
    return tuple(said)


def _line(
    rows: list[dict[str, Any]], service: str, batch: int, modes: list[str], figure: str, base: str = "none"
) -> list[str]:
    mine = [row for row in rows if row["service"] == service and row["batch"] == batch]
    under = {row["repeat"]: row[figure] for row in mine if row["mode"] == base}
    line = [SERVICES[service].title, str(batch), median_spread([value for value in under.values() if value], "{:.1f}")]
    for mode in modes:
        if mode != base:
            pairs = [(row[figure], under.get(row["repeat"])) for row in mine if row["mode"] == mode]
            line.append(median_spread([100 * (one / other - 1) for one, other in pairs if one and other], "{:+.1f} %"))
    return line


def _together(rows: list[dict[str, Any]], modes: list[str]) -> Table:
    cells: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in rows:
        cells.setdefault((row["service"], row["batch"], row["repeat"]), {})[row["mode"]] = row["p50"]
    lines = []
    for mode in modes:
        over_bare = [cell[mode] / cell["none"] for cell in cells.values() if mode in cell and "none" in cell]
        over_own = [cell[mode] / cell["nspb"] for cell in cells.values() if mode in cell and "nspb" in cell]
        slower = sum(ratio > 1 for ratio in over_own)
        told = (_mean_over(over_bare), _mean_over(over_own), f"{slower} of {len(over_own)}")
        lines.append([label(mode), *("-" if base == mode else one for base, one in zip(_BASES, told, strict=True))])
    columns = ("mode", "over bare", "over nspb", "slower than nspb in")
    notes = ("The geometric mean of the median query's latency over that of the run beside it.",)
    return Table("All of these runs together", columns, lines, notes)


def _mean_over(ratios: list[float]) -> str:
    return f"{100 * (math.exp(sum(map(math.log, ratios)) / len(ratios)) - 1):+.1f} %" if ratios else "-"


def _paper_line(service: str, modes: list[str]) -> list[str] | None:
    paper = SERVICES[service].paper
    if paper is None:
        return None
    own = paper.latency["nspb"]
    return [
        SERVICES[service].title,
        *(f"{100 * (paper.latency[mode] / own - 1):+.1f} %" if mode in paper.latency else "-" for mode in modes),
    ]
