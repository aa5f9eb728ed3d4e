"""Latency and throughput of each service in each mode over bare, in turn (HAMS, figures 10 to 12, Table I)."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from agents.bench.hams.cells import Cell, measure
from agents.bench.hams.services import SERVICES, label
from agents.bench.pard.output import Table

if TYPE_CHECKING:
    from agents.bench.hams.setting import Setting

BATCH = 64


def measure_latency(setting: Setting) -> dict[str, Any]:
    """Every service at one batch size, its own code computing."""
    return {"rows": _rows(setting, setting.services, (BATCH,), emulated=False)}


def measure_emulated(setting: Setting) -> dict[str, Any]:
    """Every service whose computing is as long as in the paper."""
    names = tuple(name for name in setting.services if SERVICES[name].paces)
    return {"rows": _rows(setting, names, (BATCH,), emulated=True)}


def measure_sizes(setting: Setting) -> dict[str, Any]:
    """Batch sizes, for some services."""
    names = tuple(name for name in setting.services if name in ("sa", "ol-small", "bandit"))
    return {"rows": _rows(setting, names, setting.sizes, emulated=False, modes=("none", "nspb", "remus"))}


def _rows(
    setting: Setting, names: tuple[str, ...], sizes: tuple[int, ...], *, emulated: bool, modes: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    rows = []
    for repeat in range(setting.repeats):
        for name in names:
            for size in sizes:
                interval = None
                for mode in modes or setting.modes:
                    cell = Cell(SERVICES[name], mode, size, emulated)
                    found = measure(
                        cell,
                        setting.cluster,
                        setting.folder,
                        setting.run(),
                        count=setting.bursts,
                        interval=interval,
                        environment=setting.environment,
                        say=setting.say,
                    )
                    interval = interval or found.interval
                    setting.say(
                        f"{repeat + 1}/{setting.repeats} {cell.name}: p50 {found.p50:.1f} ms, p99 {found.p99:.1f} ms, "
                        f"{found.throughput:.1f}/s"
                    )
                    rows.append(
                        {"service": name, "mode": mode, "batch": size, "repeat": repeat, "emulated": emulated}
                        | {
                            "p50": found.p50,
                            "p99": found.p99,
                            "throughput": found.throughput,
                            "interval": found.interval,
                        }
                    )
    return rows


def tables(result: dict[str, Any]) -> list[Table]:
    """Latency over bare, and throughput over bare; medians of the repeats, each with its own bare."""
    rows = result["rows"]
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    cells = list(dict.fromkeys((row["service"], row["batch"]) for row in rows))
    emulated = any(row["emulated"] for row in rows)
    word = "emulated" if emulated else "the services' own code"
    columns = ("service", "batch", "bare p50, ms", *(label(mode) for mode in modes if mode != "none"))
    latency = [_line(rows, service, batch, modes, "p50") for service, batch in cells]
    through = [_line(rows, service, batch, modes, "throughput") for service, batch in cells]
    paper = [line for service, _ in cells if (line := _paper_line(service, modes)) is not None]
    made = [
        Table(f"Latency over bare, median query ({word})", columns, latency, _notes(emulated=emulated)),
        Table(f"Throughput over bare ({word})", (*columns[:2], "bare, queries/s", *columns[3:]), through),
    ]
    if paper:
        made.append(Table("The paper's latency over HAMS (Table I)", ("service", *map(label, modes)), paper))
    return made


def _notes(*, emulated: bool) -> tuple[str, ...]:
    said = ["Median of the repeats, each over its own bare run beside it; in brackets from the least to the most."]
    if emulated:
        said.append("Emulated: how long a stage computes (see `agents/bench/hams/services.py`); all else is real.")
    return tuple(said)


def _line(rows: list[dict[str, Any]], service: str, batch: int, modes: list[str], figure: str) -> list[str]:
    mine = [row for row in rows if row["service"] == service and row["batch"] == batch]
    bare = {row["repeat"]: row[figure] for row in mine if row["mode"] == "none"}
    line = [SERVICES[service].title, str(batch), _spread([bare[key] for key in sorted(bare)], "{:.1f}")]
    for mode in modes:
        if mode != "none":
            ratios = [100 * (row[figure] / bare[row["repeat"]] - 1) for row in mine if row["mode"] == mode]
            line.append(_spread(ratios, "{:+.1f} %"))
    return line


def _spread(values: list[float], form: str) -> str:
    if not values:
        return "not measured"
    middle = form.format(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({form.format(min(values))} to {form.format(max(values))})"


def _paper_line(service: str, modes: list[str]) -> list[str] | None:
    paper = SERVICES[service].paper
    if paper is None:
        return None
    own = paper.latency["nspb"]
    return [
        SERVICES[service].title,
        *(f"{100 * (paper.latency[mode] / own - 1):+.1f} %" if mode in paper.latency else "-" for mode in modes),
    ]
