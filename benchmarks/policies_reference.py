"""The comparison on the cases of the independent reference: its pipelines, recorded arrivals and workers.

With a queue per worker the other policies' figures are the reference's own, where it has them: another simulator's,
written by others. With one queue per stage, which it does not know, all are ours. So are those of `spillway`, always,
and the bound, which is the reference's, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.pard import bound
from benchmarks.pard.applications import from_artifact
from benchmarks.policies_cells import OURS, Row, run
from benchmarks.reference import rows
from spillway.producers.load.traces import read_arrivals

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from spillway.agents.sim.plan import Dispatch


def measure(
    reference: Path, apps: Sequence[str], policies: Sequence[str], dispatches: Sequence[Dispatch], period: float
) -> Iterator[Row]:
    """Hold the policies side by side in each of the reference's cases; `period`: of ours, in seconds."""
    theirs: dict[tuple[str, str, str], dict[str, tuple[float, float]]] = {}
    for row in rows(reference, policies):
        rates = float(row["drop_pct"]) / 100, float(row["invalid_pct"]) / 100
        theirs.setdefault((row["app"], row["trace"], row["workers"]), {})[row["policy"]] = rates
    for dispatch in dispatches:
        for (app, trace, workers), known in theirs.items():
            if apps and app not in apps:
                continue
            pipeline = from_artifact(reference.parent / "apps" / f"{app}.json")
            due = read_arrivals(reference / f"{trace}.csv.gz")
            counts = [int(count) for count in workers.split()]
            found = dict(known) if dispatch == "worker" else {}
            for policy in policies:
                if policy not in found:
                    own = period if policy.startswith(OURS) else 1.0
                    found[policy] = run(pipeline, due, counts, policy, dispatch, own)
            yield Row(app, trace, 1.0, dispatch, bound.of(pipeline, due, counts).rate, found)
