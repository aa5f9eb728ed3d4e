"""One pipeline of emulated accelerators under one policy: live on Kafka, then the same arrivals simulated.

A stage is one process with one queue for all its instances, as the live driver has it, so the simulation dispatches
`shared`. What the simulation does not know is measured in the live run itself and handed to it: of each query, every
hop (`benchmarks.live_hops`); of each stage, by how much a batch takes its instance up for longer than the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import yaml

from benchmarks.live_hops import measured_hops, read_ways
from benchmarks.scene import exchange, serve
from spillway.agents.cli.metering import StageMeter
from spillway.agents.sim.simulation import simulate
from spillway.agents.supervise.registry import entries
from spillway.agents.supervise.scrape import scrape
from spillway.lineage.errors import SpillwayError
from spillway.lineage.metric_names import OVERHEAD_SECONDS
from spillway.producers.load.generator import Pace, generated, run_load
from spillway.producers.load.payloads import signature_payload
from spillway.producers.report import Report
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from spillway.lineage.message import Outcome
    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline

_QUEUE = 100_000  # so that nothing waits in Kafka, which the simulation knows nothing of
_GRACE = 20.0  # seconds: without drops, queues outlive a deadline by far


@dataclass(frozen=True, slots=True)
class Cell:
    """What one live run and its simulation came to."""

    live: Report
    simulated: Report
    hops: Mapping[str, float]  # median seconds by stage, and of the gate
    overhead: float  # mean seconds by which a batch takes its instance up for longer than the model; the worst stage's
    slip_p99: float  # seconds by which the sender was late


def sized(application: Path, name: str, rate: float, headroom: float, folder: Path) -> Pipeline:
    """Write the application anew, with enough instances per stage for `headroom` times `rate`, and load it."""
    given = load(application)
    stages = []
    for stage in given.spec.stages:
        one = stage.batching.most / given.durations[stage.name](stage.batching.most)  # requests a second
        kept = stage.model_dump(mode="json", exclude_defaults=True, exclude={"policy", "workers"})
        stages.append(kept | {"workers": {"count": math.ceil(headroom * rate / one)}, "queue": _QUEUE})
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"name": name, "slo": given.spec.slo, "stages": stages}, sort_keys=False))
    return load(file)


def run_cell(
    pipeline: Pipeline,
    settings: ClientSettings,
    arrivals: NDArray[np.float64],
    policy: str,
    folder: Path,
) -> Cell:
    """Serve, send, stop; then simulate. The broker at `settings` must be up."""
    spec = pipeline.spec
    outcomes: dict[int, Outcome] = {}
    run_dir = folder / "run"
    with serve(pipeline, settings, run_dir, policy=policy), exchange(settings, spec.name) as sending:
        meter = StageMeter(run_dir, spec)
        queries = generated(arrivals, signature_payload(spec), seed=0)
        result = run_load(sending, queries, Pace(slo=spec.slo, grace=_GRACE, observe=outcomes.__setitem__))
        stages = meter.totals()
        overheads = {stage.name: mean_of(run_dir, spec.name, OVERHEAD_SECONDS, stage.name) for stage in spec.stages}
    if stages is None:
        raise SpillwayError(f"{spec.name}: not every stage tells its figures; see the logs under {run_dir}")
    live = Report.build(
        pipeline=spec.name,
        policy=policy,
        trace="live",
        slo=spec.slo,
        duration=float(arrivals[-1]),
        due=result.due,
        finished=result.finished,
        kind=result.kind,
        spent=result.spent,
        slip=result.sent - result.due,
        duplicates=result.duplicates,
        stages=stages,
        emulated=True,
    )
    hops = measured_hops(read_ways(settings, pipeline), outcomes, result, pipeline, overheads)
    longer = replace(pipeline, durations=slowed(pipeline.durations, overheads))
    simulated = simulate(longer, arrivals, dispatch="shared", policy=policy, hops=hops).report("simulated")
    slip = float(np.quantile(result.sent - result.due, 0.99))
    return Cell(live, simulated, _medians(hops), max(overheads.values()), slip)


def slowed(
    durations: Mapping[str, Callable[[int], float]], overheads: Mapping[str, float]
) -> dict[str, Callable[[int], float]]:
    """Durations by which an instance is taken up: the model's, and what was measured on top of it."""

    def longer(duration: Callable[[int], float], overhead: float) -> Callable[[int], float]:
        return lambda count: duration(count) + overhead

    return {stage: longer(duration, overheads[stage]) for stage, duration in durations.items()}


def _medians(hops: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    return {place: float(np.median(seconds)) for place, seconds in hops.items()}


def mean_of(run_dir: Path, pipeline: str, name: str, stage: str) -> float:
    """The mean of a distribution over the processes of a stage, since their start."""
    found = [
        snapshot.distribution(name)
        for entry in entries(run_dir, pipeline)
        if entry.role == "stage" and entry.stage == stage and (snapshot := scrape(entry, 0.0)) is not None
    ]
    return sum(each.total for each in found) / max(1.0, sum(each.count for each in found))
