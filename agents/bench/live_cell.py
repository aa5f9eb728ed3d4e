"""One pipeline of emulated accelerators under one policy: live on Kafka, then the same arrivals simulated.

A stage is one process with one queue for all its instances, as the live driver has it, so the simulation dispatches
`shared`. What the simulation does not know is measured in the live run itself and handed to it, for each query: what is
left of a prediction's latency after queueing, batch waits and executions along its longest path, shared out over the
hops (one before each stage, and the way through the gate). How long those took that were dropped is not known; they get
the hops of others, drawn at random.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import yaml

from agents.cli.metering import StageMeter
from agents.sim.simulation import simulate
from agents.supervise.registry import entries
from agents.supervise.scrape import scrape
from agents.supervise.service import ServiceSettings, served
from lineage.errors import SpillwayError
from lineage.message import PREDICTION, StageTiming
from lineage.metric_names import HANDOFF_SECONDS, INTAKE_SECONDS
from producers.client.exchange import Exchange
from producers.load import generated
from producers.load.generator import Pace, run_load
from producers.load.payloads import signature_payload
from producers.report import Report
from topology.load import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from lineage.message import Outcome
    from producers.connection import ClientSettings
    from producers.load.tally import LoadResult
    from topology.load import Pipeline

_LINGER = 0.001
_QUEUE = 100_000  # so that nothing waits in Kafka, which the simulation knows nothing of
_GRACE = 20.0  # seconds: without drops, queues outlive a deadline by far


@dataclass(frozen=True, slots=True)
class Cell:
    """What one live run and its simulation came to."""

    live: Report
    simulated: Report
    hop: float  # median seconds
    intake: float  # mean seconds from a message's timestamp in its topic to the stage's queue
    handoff: float  # mean seconds from the end of an execution to the production of its messages
    slip_p99: float  # seconds by which the sender was late


def sized(application: Path, name: str, rate: float, headroom: float, folder: Path) -> Pipeline:
    """Write the application anew, with enough instances per stage for `headroom` times `rate`, and load it."""
    given = load(application)
    stages = []
    for stage in given.spec.stages:
        one = stage.batch_size / given.durations[stage.name](stage.batch_size)  # requests a second
        kept = stage.model_dump(mode="json", exclude_defaults=True, exclude={"policy", "replicas", "instances"})
        stages.append(kept | {"instances": math.ceil(headroom * rate / one), "queue": _QUEUE})
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"name": name, "slo": given.spec.slo, "stages": stages}, sort_keys=False))
    return load(file)


def run_cell(
    pipeline: Pipeline,
    settings: ClientSettings,
    arrivals: NDArray[np.float64],
    policy: str,
    folder: Path,
    *,
    environment: Mapping[str, str],
    say: Callable[[str], None],
) -> Cell:
    """Serve, send, stop; then simulate. The broker at `settings` must be up."""
    spec = pipeline.spec
    inside: dict[int, float] = {}  # by query, seconds in stages

    def observe(index: int, outcome: Outcome) -> None:
        if outcome.kind == PREDICTION:
            inside[index] = longest_path(outcome.timings, pipeline.graph.predecessors)

    run_dir = folder / "run"
    service = ServiceSettings(pipeline, settings, run_dir, policy=policy, environment=environment)
    with served(service, say=say):
        exchange = Exchange(settings, spec.name, linger=_LINGER)
        try:
            meter = StageMeter(run_dir, spec)
            queries = generated(arrivals, signature_payload(spec), seed=0)
            result = run_load(exchange, queries, Pace(slo=spec.slo, grace=_GRACE, observe=observe))
            stages = meter.totals()
            intake, handoff = (_mean(run_dir, spec.name, name) for name in (INTAKE_SECONDS, HANDOFF_SECONDS))
        finally:
            exchange.close()
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
    hops = _hops(result, inside, pipeline)
    simulated = simulate(pipeline, arrivals, dispatch="shared", policy=policy, hops=hops).report("simulated")
    slip = float(np.quantile(result.sent - result.due, 0.99))
    return Cell(live, simulated, float(np.median(hops)), intake, handoff, slip)


def _mean(run_dir: Path, pipeline: str, name: str) -> float:
    """The mean of a distribution over all stage processes, since their start."""
    found = [
        snapshot.distribution(name)
        for entry in entries(run_dir, pipeline)
        if entry.role == "stage" and (snapshot := scrape(entry, 0.0)) is not None
    ]
    return sum(each.total for each in found) / max(1.0, sum(each.count for each in found))


def _hops(result: LoadResult, inside: Mapping[int, float], pipeline: Pipeline) -> NDArray[np.float64]:
    """Seconds of a hop for every query: its own where it was predicted, else that of one which was, drawn at random."""
    if not inside:
        return np.zeros(len(result.due))
    ids = np.fromiter(inside, np.int64)
    ways = [StageTiming(name, 1.0, 0.0, 0.0, 1) for name in pipeline.graph.order]
    count = longest_path(ways, pipeline.graph.predecessors) + 1
    measured = (result.finished - result.due)[ids] - np.fromiter(inside.values(), np.float64)
    hops = np.random.default_rng(0).choice(measured, len(result.due))
    hops[ids] = measured
    return np.maximum(0.0, hops / count)


def longest_path(timings: Sequence[StageTiming], predecessors: Mapping[str, Sequence[str]]) -> float:
    """Seconds that a query spent in stages along the longest of its paths: queued, waiting, executing."""
    spent = {timing.stage: timing.queued + timing.waited + timing.executed for timing in timings}
    ends: dict[str, float] = {}

    def end(stage: str) -> float:
        if stage not in ends:
            ends[stage] = spent[stage] + max((end(name) for name in predecessors[stage] if name in spent), default=0.0)
        return ends[stage]

    return max((end(stage) for stage in spent), default=0.0)
