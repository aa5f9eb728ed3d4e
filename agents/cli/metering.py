"""What the stages of a pipeline did between two moments, from the metrics of their processes."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

from spillway.agents.supervise.registry import entries
from spillway.agents.supervise.scrape import Snapshot, scrape
from spillway.lineage import metric_names as names
from spillway.lineage.message import DROPPED, FAILED
from spillway.producers.report import StageTotals

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.agents.supervise.registry import Entry
    from spillway.topology.spec import PipelineSpec


class StageMeter:
    """Reads the stages' metrics when it is made, and what has been added since when it is asked."""

    def __init__(self, run_dir: Path, spec: PipelineSpec) -> None:
        self._run_dir = run_dir
        self._spec = spec
        self._before = {(entry.name, entry.pid): snapshot for entry, snapshot in self._read()}

    def totals(self) -> dict[str, StageTotals] | None:
        """By stage, in the spec's order; None where a stage has no process here that answers.

        A replica that was started anew in between counts since its start: what its predecessor did is not known.
        """
        sums: dict[str, _Sums] = defaultdict(_Sums)
        for entry, now in self._read():
            sums[entry.stage].add(now, self._before.get((entry.name, entry.pid), Snapshot(now.at)))
        if any(stage.name not in sums for stage in self._spec.stages):
            return None
        return {stage.name: sums[stage.name].totals(joins=len(stage.after) > 1) for stage in self._spec.stages}

    def _read(self) -> list[tuple[Entry, Snapshot]]:
        return [
            (entry, snapshot)
            for entry in entries(self._run_dir, self._spec.name)
            if entry.role == "stage" and (snapshot := scrape(entry, time.monotonic())) is not None
        ]


_COUNTERS = (names.RECEIVED_TOTAL, names.BATCHES_TOTAL, names.BATCHED_QUERIES_TOTAL, names.BUSY_SECONDS_TOTAL)
_TIMES = (names.QUEUE_SECONDS, names.BATCH_WAIT_SECONDS)


class _Sums(defaultdict[str, float]):
    """What all replicas of a stage did together, by metric; of a distribution also the count, as `<metric>_count`."""

    def __init__(self) -> None:
        super().__init__(float)

    def add(self, now: Snapshot, before: Snapshot) -> None:
        for name in _COUNTERS:
            self[name] += now.value(name) - before.value(name)
        for kind in (DROPPED, FAILED):
            self[kind] += sum(now.outcomes.get(kind, {}).values()) - sum(before.outcomes.get(kind, {}).values())
        for name in _TIMES:
            spent = now.distribution(name).since(before.distribution(name))
            self[name] += spent.total
            self[f"{name}_count"] += spent.count
        self[names.MODEL_INSTANCES] += now.value(names.MODEL_INSTANCES)

    def totals(self, *, joins: bool) -> StageTotals:
        batches, queries, busy = (self[name] for name in _COUNTERS[1:])
        queued, waited = (self[name] / max(1.0, self[f"{name}_count"]) for name in _TIMES)
        return StageTotals(
            received=int(queries + self[DROPPED] if joins else self[names.RECEIVED_TOTAL]),
            batches=int(batches),
            queries=int(queries),
            dropped=int(self[DROPPED]),
            failed=int(self[FAILED]),
            queued=queued,
            waited=waited,
            executed=busy / max(1.0, batches),
            busy=busy,
            instances=int(self[names.MODEL_INSTANCES]),
        )
