"""Run a pipeline over arrivals in virtual time."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from spillway.agents.sim.engine import Engine
from spillway.agents.sim.observe import SimulationResult
from spillway.agents.sim.plan import plan_of
from spillway.lineage.errors import UsageError
from spillway.lineage.metric_names import GATE
from spillway.producers.report import StageTotals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from spillway.agents.sim.choices import Chances
    from spillway.agents.sim.engine import StageRun
    from spillway.agents.sim.observe import Observer
    from spillway.agents.sim.plan import Dispatch, Plan
    from spillway.topology.load import Pipeline


def simulate(
    pipeline: Pipeline,
    arrivals: ArrayLike,
    *,
    workers: Sequence[int] | None = None,
    dispatch: Dispatch = "partition",
    policy: str | None = None,
    slo: float | None = None,
    seed: int = 0,
    choices: Mapping[str, Chances] | None = None,
    durations: Mapping[str, Callable[[int], float]] | None = None,
    hop_delay: float = 0.0,
    period: float | None = None,
    batches: Mapping[str, int] | None = None,
    observer: Observer | None = None,
    budgets: ArrayLike | None = None,
    partitions: ArrayLike | None = None,
    hops: ArrayLike | Mapping[str, ArrayLike] | None = None,
    chosen: Mapping[str, Sequence[tuple[str, ...] | None]] | None = None,
    progress: Callable[[int], None] = lambda _arrived: None,
) -> SimulationResult:
    """Let the requests that arrive at these times (seconds, sorted) run to their ends, and say how it went.

    `workers`: model instances per stage in the spec's order (None: as the spec says). `dispatch`: over a queue per
    instance in turn (worker), one queue per stage (shared), or by partition over the replicas' queues, as live.
    `policy` and `slo` (seconds) stand in for the spec's. `choices`: by stage that chooses successors, the probability
    of each choice (a successor's name, several joined by "+", or "" for none); the default is one successor, each as
    likely. `chosen`: by stage, what each request chooses, where that is known (else None), in place of a drawn choice.
    `durations`: by stage, seconds of a batch of n, where the spec has no profile.
    `hop_delay`: seconds between sender and stage, stage and stage, stage and sender. `period`: seconds of
    the policies' synchronisation (None: as the policies say).
    `budgets`, `partitions` and `hops`: each request's own, where known: seconds to its deadline in place of the SLO,
    its partition in place of a drawn one (used where requests are dispatched by partition), and its `hop_delay`, the
    same everywhere or by the stage that it leads to (`GATE` for the last).
    `batches`: by stage, the planned size instead of the spec's. `observer`: records what happens; see
    `spillway.agents.sim.observe`.
    `progress` hears now and then how many requests have arrived. The same arguments give the same result.
    """
    due = np.array(arrivals, np.float64)
    if not len(due):
        raise UsageError("no arrivals to simulate")
    if not np.isfinite(due).all() or due[0] < 0 or (np.diff(due) < 0).any():
        raise UsageError("arrivals must be finite, at least 0 and sorted")
    plan = plan_of(
        pipeline,
        workers=workers,
        dispatch=dispatch,
        policy=policy,
        slo=slo,
        seed=seed,
        choices=choices or {},
        durations=durations or {},
        hop_delay=hop_delay,
        period=period,
        batches=batches or {},
    )
    engine = Engine(
        plan,
        due,
        progress,
        budgets=_budgets(budgets, due),
        hops=_hops(hops, due, plan),
        partitions=_partitions(partitions, due, plan),
        chosen=chosen,
        observer=observer,
    )
    collects = gc.isenabled()
    gc.disable()  # requests and batches hold no cycles; looking for them would cost more, the longer the trace
    try:
        engine.run()
    finally:
        if collects:
            gc.enable()
    return SimulationResult(
        pipeline=pipeline.spec.name,
        policy=policy or "/".join(dict.fromkeys(str(stage.policy) for stage in plan.stages)),
        period=plan.period,
        slo=plan.slo,
        due=due,
        finished=np.frombuffer(engine.finished),
        kind=np.frombuffer(engine.kinds, np.uint8),
        spent=np.frombuffer(engine.charged),
        stages={name: _totals(run) for name, run in engine.stages.items()},
    )


def _budgets(given: ArrayLike | None, due: NDArray[np.float64]) -> list[float]:
    budgets = np.array([] if given is None else given, np.float64)
    if given is not None and (len(budgets) != len(due) or not (budgets > 0).all()):
        raise UsageError(f"{len(budgets)} budgets for {len(due)} arrivals; give one each, above 0")
    return [float(seconds) for seconds in budgets]


def _hops(
    given: ArrayLike | Mapping[str, ArrayLike] | None, due: NDArray[np.float64], plan: Plan
) -> dict[str, list[float]]:
    if given is None:
        return {}
    places = [*(stage.name for stage in plan.stages), GATE]
    if not isinstance(given, Mapping):
        return dict.fromkeys(places, _way("each request", given, due))
    if set(given) != set(places):
        raise UsageError(f"hop delays into {', '.join(sorted(given))}; give them for {', '.join(places)}")
    return {place: _way(place, given[place], due) for place in places}


def _way(place: str, given: ArrayLike, due: NDArray[np.float64]) -> list[float]:
    hops = np.array(given, np.float64)
    if len(hops) != len(due) or not (np.isfinite(hops) & (hops >= 0)).all():
        raise UsageError(f"{len(hops)} hop delays of {place} for {len(due)} arrivals; give one each, at least 0")
    return [float(seconds) for seconds in hops]


def _partitions(given: ArrayLike | None, due: NDArray[np.float64], plan: Plan) -> list[int]:
    if given is None or not plan.partitions:
        return []
    partitions = np.array(given, np.int64)
    if len(partitions) != len(due) or not ((partitions >= 0) & (partitions < plan.partitions)).all():
        raise UsageError(
            f"{len(partitions)} partitions for {len(due)} arrivals; give one each, below {plan.partitions}"
        )
    return [int(partition) for partition in partitions]


def _totals(run: StageRun) -> StageTotals:
    return StageTotals(
        received=sum(station.arrived for station in run.stations),
        batches=run.batches,
        queries=run.finished,
        dropped=run.dropped,
        failed=0,
        queued=run.queued / run.finished if run.finished else 0.0,
        waited=run.waited / run.finished if run.finished else 0.0,
        executed=run.executed / run.batches if run.batches else 0.0,
        busy=run.executed,
        instances=run.plan.queues * run.plan.instances,
    )
