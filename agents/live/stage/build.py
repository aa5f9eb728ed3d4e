"""Building what a stage process is made of from its pipeline's spec."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from spillway.agents.core.batching import Batcher
from spillway.agents.core.cache import PredictionCache
from spillway.agents.core.durations import Estimate
from spillway.agents.core.join_rules import PAYLOAD_BYTES, Rule
from spillway.agents.core.lane import Ticket
from spillway.agents.core.laned_stage import LanedCore
from spillway.agents.core.lanes import Lanes
from spillway.agents.core.limits import limits
from spillway.agents.core.paths import PathPredictor
from spillway.agents.core.policies import DEFAULT, make, period_of, selected
from spillway.agents.core.policy import StageFacts, StageView
from spillway.agents.core.stage import StageCore
from spillway.agents.core.stateful_stage import StatefulCore
from spillway.agents.live.stage.batch_work import BatchWork, UserFunctions
from spillway.agents.live.stage.cached import Keys
from spillway.agents.live.stage.crash_watch import CrashWatch
from spillway.agents.models.declared import load_declared
from spillway.agents.models.execution import Runner
from spillway.agents.models.loading import limit_torch_threads, load_model, load_policy
from spillway.agents.models.plain import BareModel, EmulatedModel
from spillway.agents.run.intake import Signature
from spillway.lineage.errors import ModelError
from spillway.topology.variants.variant import variants_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from spillway.agents.core.laned_stage import Combines
    from spillway.agents.core.step import Step
    from spillway.agents.live.stage.config import StageConfig
    from spillway.agents.live.stage.lookups import Lookups
    from spillway.agents.models.loading import Model
    from spillway.checkpoint.durability import Durability
    from spillway.checkpoint.logs import Logs
    from spillway.checkpoint.reign import Reign
    from spillway.topology.load import Pipeline
    from spillway.topology.spec import PipelineSpec, StageSpec

log = logging.getLogger(__name__)


def load_copies(spec: StageSpec, numbers: Iterable[int], torch_threads: int) -> list[tuple[Runner, Model]]:
    """Load copies of the stage's model with these numbers, each on the thread that is going to run it.

    Raises ModelError that names stage, model and cause.
    """
    runners = [Runner(f"instance-{number}") for number in numbers]
    return [(runner, runner.call(partial(load_copy, spec, torch_threads))) for runner in runners]


def load_copy(spec: StageSpec, torch_threads: int) -> Model:
    """Load one copy of the stage's model. Raises ModelError that names stage, model and cause."""
    model = _load_model(spec)
    limit_torch_threads(torch_threads)
    return model


def _load_model(spec: StageSpec) -> Model:
    if spec.emulated is not None:
        return EmulatedModel(spec.emulated.duration)
    if spec.model is None:
        raise ModelError(f"stage {spec.name!r}: it has neither a model nor an emulated profile")
    if spec.state is not None:  # `replication: none`; a member of a shard loads its model otherwise
        model = load_declared(spec.name, spec.model, spec.arguments, spec.workers.device, spec.state.kind)
        return BareModel(f"stage {spec.name!r}", model)
    return load_model(spec.name, spec.model, spec.arguments, spec.workers.device)


def pause_of(spec: StageSpec) -> float:
    """Seconds that a worker of an emulated stage takes to be ready."""
    return 0.0 if spec.emulated is None else spec.emulated.load or 0.0


def build_guard(spec: StageSpec, folder: Path) -> CrashWatch:
    """What finds batches that hang, and, of a stage with a state, which queries its processes died of.

    `folder` has what earlier processes had under way. A stage without a state needs none: after two deaths its workers
    are processes (`StageConfig.processes`), and it is these that die.
    """
    noted = folder if spec.state is not None else None
    return CrashWatch(
        spec.name, timeout=spec.workers.timeout, folder=noted, slots=spec.workers.of_front(0), most=spec.batching.most
    )


@dataclass(frozen=True, slots=True)
class Known:
    """What a stage's model says of itself."""

    version: str = ""
    signature: Any = None
    deterministic: bool = False  # whether it says that it answers equal queries alike


def known_of(model: Any) -> Known:
    deterministic = getattr(model, "deterministic", False) is True
    return Known(str(getattr(model, "version", "") or ""), getattr(model, "input_signature", None), deterministic)


def known_of_hello(hello: Mapping[str, Any]) -> Known:
    return Known(str(hello.get("version", "")), hello.get("signature"), hello.get("deterministic") is True)


def build_work(
    config: StageConfig, models: Mapping[int, Model], known: Known, guard: CrashWatch, lookups: Lookups | None = None
) -> BatchWork:
    graph, spec = config.pipeline.graph, config.spec
    joins = graph.is_join(spec.name)
    return BatchWork(
        spec,
        models,
        UserFunctions(spec, graph.successors[spec.name], partial(graph.expected, spec.name)),
        joins=joins,
        version=known.version,
        signature=stage_signature(spec, known) if joins else None,
        limits=config.pipeline.spec.limits.merged(),
        guard=guard,
        lookups=lookups,
    )


def check_remembers(place: str, spec: StageSpec, known: Known) -> None:
    """Raise ModelError for a model with a cache that does not say that it answers equal queries alike."""
    if spec.cache is not None and not known.deterministic:
        raise ModelError(
            f"{place}: 'cache' is for models that answer equal queries alike, which {spec.model} does not declare; set "
            "'deterministic = True' on its class, or drop 'cache'"
        )


def stage_signature(spec: StageSpec, known: Known) -> Signature | None:
    inputs = spec.inputs or known.signature
    return Signature(inputs) if inputs else None


def period_for(config: StageConfig) -> float:
    """Return the seconds between two words of a replica to the other stages."""
    stages = config.pipeline.spec.stages
    return config.plan_period or period_of((config.policy or stage.policy for stage in stages), load_policy)


def build_core(
    config: StageConfig,
    *,
    durability: Durability | None = None,
    threads: int | None = None,
    steps: Sequence[Step] = (),
    route: Combines | None = None,
    payload_bytes: int = PAYLOAD_BYTES,
) -> StageCore:
    """Build the core with its policy; durations start from the stage's profile and are then measured.

    `durability` is needed behind a stateful stage. `threads`: workers that are there from the start, where these are
    not all that the spec names. `steps`: of its sections (`spillway.agents.live.stage.driver`). `route`: of its
    ensemble or variants. `payload_bytes`: see `Rule`.
    """
    graph, spec = config.pipeline.graph, config.spec
    batcher, rule, learns = _decider(config, spec, threads)
    rule = replace(rule, payload_bytes=payload_bytes)
    options: dict[str, Any] = {"rule": rule, "queue_limit": spec.queue, "durability": durability}
    options["steps"] = [*steps, *learns]
    if route is None:
        return StageCore(graph, spec.name, batcher, **options)
    return LanedCore(graph, spec.name, _lanes(config, route), route, **options)


def build_stateful_core(config: StageConfig, *, reign: Reign[Any], logs: Logs) -> StatefulCore:
    """Build the core of one reign over a shard, which is the config's replica. `logs`: of all stateful stages."""
    graph, spec = config.pipeline.graph, config.spec
    batcher, rule, learns = _decider(config, spec)
    return StatefulCore(
        graph, spec.name, batcher, reign=reign, logs=logs, rule=rule, steps=learns, queue_limit=spec.queue
    )


def _decider(
    config: StageConfig, spec: StageSpec, threads: int | None = None, duration: Callable[[int], float] | None = None
) -> tuple[Batcher, Rule, list[Step]]:
    """Build what decides for a stage, or for a member or variant (`spec`: it as a stage by itself)."""
    pipeline = config.pipeline
    paths = PathPredictor() if pipeline.graph.is_chooser(spec.name) else None
    view = build_view(config, spec, paths)
    if duration is not None:  # of a variant, which its policy judges by its own profile
        own = StageFacts(spec.batching.most, duration, max(1, spec.worker_count))  # it may have none at first
        view = replace(view, facts={**view.facts, spec.name: own})
    batcher = Batcher(
        make(selected(config.policy or spec.policy or DEFAULT, load_policy), view),
        max_batch=spec.batching.most,
        delay=spec.batching.delay,
        workers=spec.workers.of_front(config.replica) if threads is None else threads,
        duration=Estimate(duration or pipeline.durations.get(spec.name)),
        limits=limits(spec.batching.limit, spec.batching.objective, spec.batching.most),
    )
    rule = Rule(spec.join.mode, spec.join.on_loss) if spec.join is not None else Rule()
    return batcher, rule, [] if paths is None else [paths]


def _lanes(config: StageConfig, route: Combines) -> Lanes:
    spec = config.spec
    of = spec.member if spec.variants is None else spec.variant
    takes = {} if spec.variants is None else {each.name: each.duration for each in variants_of(spec.variants)}
    lanes, caches = {}, {}
    for name in spec.lanes:
        lanes[name], cache = build_lane(config, of(name), takes.get(name))
        if cache is not None:
            caches[name] = cache
    return Lanes(lanes, route, spec.queue, caches, Keys(spec.name, "").of)


def build_lane(
    config: StageConfig, own: StageSpec, duration: Callable[[int], float] | None = None
) -> tuple[Batcher, PredictionCache[Ticket] | None]:
    """Build what a lane is made of; `own`: its member or variant as a stage by itself, which takes a `duration`."""
    batcher = _decider(config, own, threads=0, duration=duration)[0]
    return batcher, None if own.cache is None else PredictionCache[Ticket](own.cache.bytes)


def build_view(config: StageConfig, spec: StageSpec, paths: PathPredictor | None = None) -> StageView:
    """Return the view that the policy of a replica of `spec` has.

    `paths` foretells what this stage itself will choose; of the choices of later stages nothing is known.
    """
    told = None if paths is None else paths.expected
    return StageView(
        spec.name,
        replica=config.replica,
        instances=spec.workers.of_front(config.replica),
        slo=config.pipeline.spec.slo,
        facts=_facts(config.pipeline),
        successors=config.pipeline.graph.successors,
        period=period_for(config),
        foresight={} if told is None else {"predicted": lambda request, share: told(request.parts[0].kind, share)},
    )


def note_sizes(facts: dict[str, StageFacts], spec: PipelineSpec) -> None:
    """Tell the policies, which have these `facts`, how many workers each stage is to have now."""
    for stage in spec.stages:
        facts[stage.name] = replace(facts[stage.name], workers=stage.worker_count)


def _facts(pipeline: Pipeline) -> dict[str, StageFacts]:
    return {
        stage.name: StageFacts(stage.batching.most, pipeline.durations.get(stage.name, _unknown), stage.worker_count)
        for stage in pipeline.spec.stages
    }


def _unknown(_size: int) -> float:
    return 0.0
