"""How soon a service goes on after processes of it die: from the kill to the first message of who takes over.

A service is under a steady load (`--rate`, or its own), and is struck several times (`benchmarks.hams.struck`). What
counts is when the first message of the new epoch was sent (the paper's measure, discovery included), at the slowest of
the stages that were struck: after the death of a stateless replica, the first message of its successor; in Fig. 6, that
of the next stage's primary too, which has to go back. Beside it, the time from the kill to the first outcome, at the
client, of a query that was due after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.hams.blows import AHEAD, SELDOM, blows
from benchmarks.hams.services import SERVICES, label
from benchmarks.hams.struck import under_load
from benchmarks.output import Table, median_spread

if TYPE_CHECKING:
    from benchmarks.hams.setting import Setting


def measure_recovery(setting: Setting) -> dict[str, Any]:
    rows = setting.progress.rows("recovery")
    known = {(row["service"], row["blow"], row["mode"], row["rate"]) for row in rows}
    for blow in blows(setting.services, setting.modes, setting.rate):
        if (blow.service, blow.name, blow.mode, blow.rate) in known:
            continue
        with under_load(setting, blow) as struck:
            found = [struck.once() for _ in range(setting.repeats)]
        told = ", ".join(f"{1e3 * each.message:.0f}/{1e3 * each.outcome:.0f}" for each in found)
        setting.say(f"{blow.service}, {blow.name}, {blow.mode}: {told} ms to the first message/outcome")
        rows.append(
            {
                "service": blow.service,
                "blow": blow.name,
                "mode": blow.mode,
                "rate": blow.rate,
                "paper_ms": blow.paper_ms,
                "first_message_ms": [round(1e3 * each.message, 1) for each in found],
                "first_outcome_ms": [round(1e3 * each.outcome, 1) for each in found],
                "computed_again": [each.again for each in found],
            }
        )
        setting.progress.keep("recovery", rows)
    return {"rows": rows}


def tables(result: dict[str, Any]) -> list[Table]:
    rows = [
        [
            SERVICES[row["service"]].title,
            row["blow"],
            label("lineage-stash" if row["mode"] == SELDOM else row["mode"]),
            f"{row['rate']:g}",
            median_spread(row["first_message_ms"], "{:.0f}"),
            median_spread(row["first_outcome_ms"], "{:.0f}"),
            "-" if row["paper_ms"] is None else f"{row['paper_ms']:.0f}",
        ]
        for row in result["rows"]
    ]
    columns = ("service", "killed", "mode", "queries/s", "first message", "first outcome at the client", "paper")
    return [Table("From the kill on, ms: median (least to most)", columns, rows, _notes(result["rows"]))]


def _notes(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    notes = [
        "First message: of the new epoch, or of the dead replica's successor; the last one where several were struck.",
        "Queries come one by one, at a rate that two cores can compute; the first after the kill is due 20 ms later.",
        "Batches are of what is there, on a CPU. The paper's are of 64, on GPUs.",
    ]
    for mode, copied in (("lineage-stash", "150 requests"), (SELDOM, "150 batches of 64")):
        again = [count for row in rows if row["mode"] == mode for count in row["computed_again"]]
        if again:
            notes.append(
                f"lineage-stash with a copy each {copied}: {min(again):,} to {max(again):,} requests were computed "
                f"again from its log. The paper's copies each 150 batches of 64, and dies {AHEAD:,} requests after one."
            )
    return tuple(notes)
