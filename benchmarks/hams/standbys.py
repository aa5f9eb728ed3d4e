"""How soon a stateless replica's queries are answered again, with a standby and without: `benchmarks.standby`.

The paper has 320 ms for a stateless operator of each service. Here its stage stands alone and its model does nothing,
so what is measured is the discovery and the takeover; that of a service's own stage is a row of the recovery section.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.output import Table, median_spread
from benchmarks.standby import MOST_KILLS, PAPER_SECONDS, measure, row

if TYPE_CHECKING:
    from benchmarks.hams.setting import Setting

_RATE = 50.0  # queries a second


def measure_standbys(setting: Setting) -> dict[str, Any]:
    """Kill replicas of two in turn, with a standby and without; eight times each at most."""
    kills, rows = min(setting.repeats, MOST_KILLS), []
    for standbys in (1, 0):
        name = f"standby-{standbys}-{setting.run()}"
        found = row(standbys, measure(setting.cluster, setting.folder, name, standbys, kills, _RATE))
        setting.say(f"{standbys} standbys: {', '.join(f'{each:.0f}' for each in found['first_ms'])} ms to an outcome")
        rows.append(found)
    return {"rate": _RATE, "rows": rows}


def tables(result: dict[str, Any]) -> list[Table]:
    rows = [
        [
            str(each["standbys"]),
            str(each["kills"]),
            median_spread(each["first_ms"], "{:.0f}"),
            f"{each['longest_query_ms']:.0f}",
            f"{1000 * PAPER_SECONDS:.0f}" if each["standbys"] else "-",
        ]
        for each in result["rows"]
    ]
    return [
        Table(
            "A stateless stage of two replicas, from the kill of one on, ms: median (least to most)",
            ("standbys", "kills", "first outcome of its partitions", "longest query", "paper"),
            rows,
            (f"{result['rate']:g} queries a second; the model answers at once and loads in no time.",),
        )
    ]
