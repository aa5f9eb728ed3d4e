"""What Spillway adds to a pipeline's own models at low load: latency minus execution along the critical path."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click
import numpy as np

from benchmarks.scene import exchange, kafka, serve
from spillway.lineage.errors import SpillwayError
from spillway.lineage.message import PREDICTION
from spillway.producers.load import schedule
from spillway.producers.load.generator import Pace, generated, run_load
from spillway.producers.load.payloads import find_payload, signature_payload
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from spillway.lineage.message import Outcome, StageTiming
    from spillway.producers.connection import ClientSettings
    from spillway.producers.load.payloads import Payload
    from spillway.topology.load import Pipeline


def critical_path(timings: Sequence[StageTiming], predecessors: Mapping[str, Sequence[str]]) -> float:
    """Seconds of execution along the longest path through the stages that a query passed."""
    executed = {timing.stage: timing.executed for timing in timings}
    ends: dict[str, float] = {}

    def end(stage: str) -> float:
        if stage not in ends:
            before = [end(name) for name in predecessors[stage] if name in executed]
            ends[stage] = max(before, default=0.0) + executed[stage]
        return ends[stage]

    return max((end(stage) for stage in executed), default=0.0)


def once(
    pipeline: Pipeline, settings: ClientSettings, payload: Payload, rate: float, seconds: float
) -> dict[str, float]:
    """One low load on a pipeline that is served; medians in milliseconds."""
    models: dict[int, float] = {}

    def observe(index: int, outcome: Outcome) -> None:
        if outcome.kind == PREDICTION:
            models[index] = critical_path(outcome.timings, pipeline.graph.predecessors)

    due = schedule.constant(rate, seconds)
    with exchange(settings, pipeline.spec.name, linger=0.0) as sending:
        result = run_load(sending, generated(due, payload), Pace(slo=pipeline.spec.slo, observe=observe))
    if len(models) < len(due):
        raise SpillwayError(f"{len(due) - len(models)} of {len(due)} queries got no prediction: lower --rate")
    latency = (result.finished - result.due) * 1e3
    own = np.array([models[index] for index in range(len(due))]) * 1e3
    return {
        "latency_p50_ms": round(float(np.median(latency)), 2),
        "models_p50_ms": round(float(np.median(own)), 2),
        "added_p50_ms": round(float(np.median(latency - own)), 2),
        "added_p99_ms": round(float(np.quantile(latency - own, 0.99)), 2),
    }


def measure(file: Path, payload: str | None, rate: float, seconds: float, repeats: int) -> list[dict[str, float]]:
    """Serve a pipeline on a Kafka of its own and send it a low load, several times."""
    loaded = load(file)
    inputs = signature_payload(loaded.spec) if payload is None else find_payload(payload)
    say = partial(click.echo, err=True)
    with kafka() as (work, settings), serve(loaded, settings, work / "run", say=say):
        once(loaded, settings, inputs, rate, 3.0)  # the first batches of a process are slow
        return [once(loaded, settings, inputs, rate, seconds) for _ in range(repeats)]
