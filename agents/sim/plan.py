"""What is simulated: a pipeline's stages with their durations, queues and instances, and how requests reach them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from spillway.agents.core.join_rules import Rule
from spillway.agents.core.limits import limits
from spillway.agents.core.policies import DEFAULT, period_of, selected
from spillway.agents.core.policy import StageFacts, StageView
from spillway.agents.models.loading import load_policy
from spillway.agents.sim.choices import Chances, Chooser, chooser
from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.agents.core.limits import Limit
    from spillway.agents.core.policies.selection import Selection
    from spillway.agents.core.request import Path, Request
    from spillway.topology.load import Pipeline
    from spillway.topology.routing import Graph
    from spillway.topology.spec import StageSpec

Dispatch = Literal["worker", "shared", "partition"]


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage: how long its batches take, and over how many queues and instances they are spread."""

    name: str
    batch: int  # the largest
    delay: float  # batching delay
    duration: Callable[[int], float]
    queues: int
    instances: int  # per queue
    owners: tuple[int, ...]  # by partition, the queue that it feeds; empty: round-robin over the queues
    policy: Selection
    limits: Callable[[], Limit] | None = None  # what makes a worker's batch limit, where it adapts
    choose: Chooser | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole pipeline, ready to be simulated."""

    stages: tuple[StagePlan, ...]
    graph: Graph
    joins: Mapping[str, Rule]  # by stage
    sinks: Literal["all", "any"]  # whether any or all of the terminals make the outcome
    slo: float
    partitions: int  # 0: requests have none
    seed: int
    hop_delay: float
    period: float  # of the policies' synchronisation

    def facts(self) -> dict[str, StageFacts]:
        return {each.name: StageFacts(each.batch, each.duration, each.queues * each.instances) for each in self.stages}

    def views(
        self,
        stage: StagePlan,
        facts: Mapping[str, StageFacts],
        shared: dict[Any, Any],
        foresight: Mapping[str, Callable[[Request, float], Path]],
    ) -> list[StageView]:
        """Return the state of the policies of `stage`, by queue.

        `facts` are what they see of all stages, which may change while these run. `shared` is common to all policies of
        one run, and so is `foresight`, what can be told of requests' choices.
        """
        return [
            StageView(
                stage=stage.name,
                replica=queue,
                instances=stage.instances,
                slo=self.slo,
                facts=facts,
                successors={each.name: tuple(self.graph.successors[each.name]) for each in self.stages},
                seed=self.seed,
                period=self.period,
                shared=shared,
                foresight=foresight,
            )
            for queue in range(stage.queues)
        ]


def plan_of(
    pipeline: Pipeline,
    *,
    workers: Sequence[int] | None = None,
    dispatch: Dispatch = "partition",
    policy: str | None = None,
    slo: float | None = None,
    seed: int = 0,
    choices: Mapping[str, Chances],
    durations: Mapping[str, Callable[[int], float]],
    hop_delay: float = 0.0,
    period: float | None = None,
    batches: Mapping[str, int],
) -> Plan:
    spec, graph = pipeline.spec, pipeline.graph
    if workers is not None and len(workers) != len(spec.stages):
        names = ", ".join(stage.name for stage in spec.stages)
        raise UsageError(f"{len(workers)} numbers of workers for {len(spec.stages)} stages; give one each for {names}")
    objective = spec.slo if slo is None else slo
    if period is None:
        period = period_of((policy or stage.policy for stage in spec.stages), load_policy)
    if not (objective > 0 and 0 < period < inf and 0 <= hop_delay < inf):
        raise UsageError(f"SLO {objective} and period {period} must be above 0, hop delay {hop_delay} at least 0")
    for name in {*choices, *durations, *batches} - {stage.name for stage in spec.stages}:
        raise UsageError(f"{spec.name} has no stage {name!r}")
    partitions = spec.partitions if dispatch == "partition" else 0
    stages = []
    for index, stage in enumerate(spec.stages):
        queues, instances = _spread(stage, None if workers is None else workers[index], dispatch)
        stages.append(
            StagePlan(
                name=stage.name,
                batch=_batch(stage, batches),
                delay=stage.batching.delay,
                duration=durations.get(stage.name) or _profile(pipeline, stage.name),
                queues=queues,
                instances=instances,
                owners=tuple(partition % queues for partition in range(partitions)),
                policy=selected(policy or stage.policy or DEFAULT, load_policy),
                limits=None
                if stage.name in batches
                else limits(stage.batching.limit, stage.batching.objective, stage.batching.most),
                choose=chooser(stage, tuple(graph.successors[stage.name]), choices.get(stage.name)),
            )
        )
    return Plan(
        stages=tuple(stages),
        graph=graph,
        joins={
            stage.name: Rule() if stage.join is None else Rule(stage.join.mode, stage.join.on_loss)
            for stage in spec.stages
            if graph.is_join(stage.name)
        },
        sinks=spec.sinks or "all",
        slo=objective,
        partitions=partitions,
        seed=seed,
        hop_delay=hop_delay,
        period=period,
    )


def _batch(stage: StageSpec, batches: Mapping[str, int]) -> int:
    size = batches.get(stage.name, stage.batching.most)
    if size < 1:
        raise UsageError(f"stage {stage.name}: batches of {size}; they hold at least one request")
    return size


def _spread(stage: StageSpec, workers: int | None, dispatch: Dispatch) -> tuple[int, int]:
    total = stage.worker_count if workers is None else workers
    if total < 1:
        raise UsageError(f"stage {stage.name}: {total} workers; it needs at least one")
    if stage.stateful and total != stage.shards:
        raise UsageError(
            f"stage {stage.name}: {total} workers, but it keeps a state, and has one for each of its shards "
            f"({stage.shards}): change 'shards' in the pipeline file, if its state is keyed"
        )
    if dispatch == "worker":
        return total, 1
    if dispatch == "shared":
        return 1, total
    queues = stage.fronts
    if total % queues:
        raise UsageError(
            f"stage {stage.name}: {total} workers cannot be spread evenly over its {queues} fronts; "
            "give a multiple, or simulate with another dispatch than partition"
        )
    return queues, total // queues


def _profile(pipeline: Pipeline, stage: str) -> Callable[[int], float]:
    duration = pipeline.durations.get(stage)
    if duration is None and pipeline.spec.stage(stage).ensemble is not None:
        raise UsageError(f"stage {stage} has an ensemble, whose durations nobody knows: it cannot be simulated")
    if duration is None and pipeline.spec.stage(stage).variants is not None:
        raise UsageError(f"stage {stage} has variants, and which one answers is not simulated yet")
    if duration is None:
        raise UsageError(
            f"stage {stage} has no profile: measure it with 'spillway plan profile {pipeline.path}', or give it "
            "`emulated` durations to simulate it"
        )
    return duration
