"""How soon a new backup has a state of 200 MB: from its start to its copy being at the newest durable version."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from agents.bench.hams.shard import Backup, Primary, change, make_state, make_topics
from agents.bench.pard.output import Table, median_spread

if TYPE_CHECKING:
    from agents.bench.hams.setting import Setting

MEGABYTES = 200
_SHARE = 0.01  # that each version after the first changes
_VERSIONS = 10


def measure_catch_up(setting: Setting) -> dict[str, Any]:
    """Write a state and some versions of it, then start one backup after the other."""
    pipeline = f"catch-up-{setting.run()}"
    make_topics(setting.cluster, pipeline)
    state = make_state(MEGABYTES)
    rows = []
    with Primary(setting.cluster, pipeline) as primary:
        began = time.monotonic()
        manifest = primary.write(state)
        written = time.monotonic() - began
        for step in range(_VERSIONS):
            change(state, _SHARE, step)
            manifest = primary.write(state)
        for repeat in range(setting.repeats):
            began, before = time.monotonic(), time.process_time()
            with Backup(setting.cluster, pipeline) as backup:
                applied = backup.until_at(manifest.version)
                row = {
                    "repeat": repeat,
                    "seconds": round(time.monotonic() - began, 3),
                    "cpu_seconds": round(time.process_time() - before, 3),
                    "apply_seconds": round(applied.seconds, 3),
                    "read_bytes": backup.read_bytes,
                }
            setting.say(f"{repeat + 1}/{setting.repeats} catching up: {row['seconds']} s")
            rows.append(row)
    shape = {"state_bytes": manifest.state_bytes, "versions": 1 + _VERSIONS, "share": _SHARE}
    return shape | {"written_seconds": round(written, 3), "rows": rows}


def tables(result: dict[str, Any]) -> list[Table]:
    rows, size = result["rows"], result["state_bytes"]
    seconds = [row["seconds"] for row in rows]
    line = [
        f"{size / 1e6:.0f} MB, {result['versions']} versions, {100 * result['share']:g} % changed by each",
        f"{statistics.median(row['read_bytes'] for row in rows) / 1e6:.0f} MB",
        f"{_median(seconds)}",
        f"{size / 1e6 / statistics.median(seconds):.0f}",
        _median([row["cpu_seconds"] for row in rows]),
        _median([row["apply_seconds"] for row in rows]),
    ]
    return [
        Table(
            f"A new backup of a state, from its start to its copy: median (least to most) of {len(rows)}",
            ("state", "read", "seconds", "MB of state a second", "CPU seconds of the backup", "of which applying, s"),
            [line],
            (
                "In one process, with its model loaded and its cluster up; the process's own start is not in it.",
                f"Writing the first version took {result['written_seconds']} s.",
            ),
        )
    ]


def _median(values: list[float]) -> str:
    return median_spread(values, "{:.2f}")
