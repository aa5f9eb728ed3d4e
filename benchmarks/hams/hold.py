"""How long the gate holds outcomes until the states they rest on are durable, and what logging costs, both live.

A service is served with nspb under a steady load of 100 queries a second. Held: from when the gate has an outcome until
it is released, beyond what any outcome takes there. Hand-off: from the end of a batch's computing to its messages'
production, with nspb the recording of the batch, too. Both are histograms: quantiles are estimates within buckets.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.hams.cells import Cell, sending, variant
from benchmarks.hams.services import SERVICES
from benchmarks.output import Table, median_spread
from spillway.agents.supervise.registry import entries
from spillway.agents.supervise.scrape import Distribution, Snapshot, scrape
from spillway.lineage.metric_names import HANDOFF_SECONDS, HOPS_MARKS_BYTES, STATE_CAPTURE_SECONDS, STATE_HOLD_SECONDS

if TYPE_CHECKING:
    from benchmarks.hams.setting import Setting

RATE = 100.0  # queries a second
_WARM, _SECONDS = 3.0, 10.0
_BATCH = 64  # at most
_NAMES = ("bandit", "ol-small")
_SHOWN = (
    (STATE_HOLD_SECONDS, "p50", 1e3),
    (STATE_HOLD_SECONDS, "p99", 1e3),
    (HANDOFF_SECONDS, "mean", 1e3),
    (STATE_CAPTURE_SECONDS, "p50", 1e3),
    (HOPS_MARKS_BYTES, "mean", 1.0),
)


def measure_hold(setting: Setting) -> dict[str, Any]:
    """Each service bare and with nspb, in turn; of several, each repeat is served anew."""
    rows = []
    for repeat in range(setting.repeats):
        for name in _NAMES:
            if name not in setting.services:
                continue
            for mode in ("none", "nspb"):
                row = {"service": name, "mode": mode, "repeat": repeat} | _once(
                    setting, Cell(SERVICES[name], mode, _BATCH)
                )
                setting.say(f"{repeat + 1}/{setting.repeats} {name}, {mode}: {row['figures']}")
                rows.append(row)
    return {"rate": RATE, "seconds": _SECONDS, "rows": rows}


def _once(setting: Setting, cell: Cell) -> dict[str, Any]:
    pipeline = variant(cell, setting.folder, setting.run(), gather=0.0)
    name = pipeline.spec.name
    with sending(setting, cell, pipeline) as (_, sender):
        sender.send(np.arange(0.0, _WARM, 1 / RATE))
        before = {entry.name: snapshot for entry, snapshot in _snapshots(setting, name)}
        result = sender.send(np.arange(0.0, _SECONDS, 1 / RATE))
        figures: dict[str, dict[str, float]] = {}
        for entry, snapshot in _snapshots(setting, name):
            _note(figures, before.get(entry.name, Snapshot(0.0)), snapshot)
    latency = 1e3 * (result.finished - result.due)
    told = {"p50": float(np.median(latency)), "p99": float(np.quantile(latency, 0.99))}
    return {"latency_ms": {key: round(value, 3) for key, value in told.items()}, "figures": figures}


def _snapshots(setting: Setting, pipeline: str) -> list[tuple[Any, Snapshot]]:
    found = [(entry, scrape(entry, time.monotonic())) for entry in entries(setting.folder / "run", pipeline)]
    return [(entry, snapshot) for entry, snapshot in found if snapshot is not None]


def _note(figures: dict[str, dict[str, float]], before: Snapshot, after: Snapshot) -> None:
    """Note what one process has observed; of several, the one with the most of each figure (the primary)."""
    for name in {name for name, _, _ in _SHOWN}:
        new: Distribution = after.distribution(name).since(before.distribution(name))
        if new.count and new.count > figures.get(name, {}).get("count", 0.0):
            figures[name] = {
                "count": new.count,
                "mean": round(new.mean(), 7),
                "p50": round(new.quantile(0.5), 7),
                "p99": round(new.quantile(0.99), 7),
            }


def tables(result: dict[str, Any]) -> list[Table]:
    rows = []
    by_cell: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in result["rows"]:
        by_cell.setdefault((row["service"], row["mode"]), []).append(row)
    for (name, mode), mine in by_cell.items():
        latencies = [[row["latency_ms"][part] for row in mine] for part in ("p50", "p99")]
        figures = [
            [scale * row["figures"][figure][part] for row in mine if figure in row["figures"]]
            for figure, part, scale in _SHOWN
        ]
        rows.append([SERVICES[name].title, mode, *(median_spread(each, "{:.2f}", "-") for each in latencies + figures)])
    columns = (
        "service", "mode", "latency p50", "p99", "held at the gate p50", "p99", "hand-off of a batch, mean",
        "copying a version, p50", "bytes of marks a message",
    )  # fmt: skip
    title = f"Under {result['rate']:g} queries a second: median of the repeats (least to most), ms"
    return [Table(title, columns, rows)]
