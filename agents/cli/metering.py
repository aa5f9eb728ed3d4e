"""What the stages of a pipeline did between two moments, from the metrics of their processes."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.supervise.registry import entries
from agents.supervise.scrape import Snapshot, scrape
from lineage import metric_names as names
from lineage.message import DROPPED, FAILED
from producers.report import StageTotals

if TYPE_CHECKING:
    from pathlib import Path

    from agents.supervise.registry import Entry
    from topology.spec import PipelineSpec


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


@dataclass(slots=True)
class _Sums:
    """What all replicas of a stage did together."""

    received: float = 0.0
    batches: float = 0.0
    queries: float = 0.0
    busy: float = 0.0
    queued: float = 0.0
    queued_count: float = 0.0
    waited: float = 0.0
    waited_count: float = 0.0
    dropped: float = 0.0
    failed: float = 0.0
    instances: float = 0.0

    def add(self, now: Snapshot, before: Snapshot) -> None:
        self.received += _grown(now, before, names.RECEIVED_TOTAL)
        self.batches += _grown(now, before, names.BATCHES_TOTAL)
        self.queries += _grown(now, before, names.BATCHED_QUERIES_TOTAL)
        self.busy += _grown(now, before, names.BUSY_SECONDS_TOTAL)
        self.dropped += now.outcomes_of(DROPPED) - before.outcomes_of(DROPPED)
        self.failed += now.outcomes_of(FAILED) - before.outcomes_of(FAILED)
        self.instances += now.value(names.MODEL_INSTANCES)
        queued = now.distribution(names.QUEUE_SECONDS).since(before.distribution(names.QUEUE_SECONDS))
        waited = now.distribution(names.BATCH_WAIT_SECONDS).since(before.distribution(names.BATCH_WAIT_SECONDS))
        self.queued += queued.total
        self.queued_count += queued.count
        self.waited += waited.total
        self.waited_count += waited.count

    def totals(self, *, joins: bool) -> StageTotals:
        return StageTotals(
            received=int(self.queries + self.dropped if joins else self.received),
            batches=int(self.batches),
            queries=int(self.queries),
            dropped=int(self.dropped),
            failed=int(self.failed),
            queued=self.queued / max(1.0, self.queued_count),
            waited=self.waited / max(1.0, self.waited_count),
            executed=self.busy / max(1.0, self.batches),
            busy=self.busy,
            instances=int(self.instances),
        )


def _grown(now: Snapshot, before: Snapshot, name: str) -> float:
    return now.value(name) - before.value(name)
