"""A stage's driver, built of its section and of what its world gives it: the same live and in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from spillway.agents.core.cache import CacheStep, PredictionCache
from spillway.agents.core.deadlines import Deadlines, DefaultAnswer
from spillway.agents.core.join_rules import PAYLOAD_BYTES
from spillway.agents.core.token_wait import TokenWait
from spillway.agents.live.groups import group_id
from spillway.agents.live.stage.build import build_core, check_remembers, stage_signature
from spillway.agents.live.stage.cached import Keys
from spillway.agents.live.stage.member_metrics import MemberMetrics
from spillway.agents.live.stage.members import Members, route_of
from spillway.agents.live.stage.variant_metrics import VariantMetrics
from spillway.agents.live.stage.variants import VariantCrews, reads_needs
from spillway.agents.live.stage.variants import route_of as variants_route
from spillway.agents.run.emission import Emission
from spillway.agents.run.inputs import Inputs, of_stage
from spillway.agents.run.intake import Intake
from spillway.agents.run.memory import Memory, Rereading
from spillway.agents.run.planner import Planner
from spillway.agents.run.stage import Stage
from spillway.agents.run.stage_context import Context
from spillway.agents.run.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from spillway.agents.core.actions import Work
    from spillway.agents.core.laned_stage import LanedCore
    from spillway.agents.core.routes.ensemble import Ensemble
    from spillway.agents.core.routes.variants import Variants
    from spillway.agents.core.stage import StageCore
    from spillway.agents.core.step import Step
    from spillway.agents.live.stage.batch_work import BatchWork
    from spillway.agents.live.stage.build import Known
    from spillway.agents.live.stage.config import StageConfig
    from spillway.agents.live.stage.crash_watch import CrashWatch
    from spillway.agents.live.stage.crew import Crew
    from spillway.agents.live.stage.lookups import Lookups
    from spillway.agents.live.stage.redundancy_workers import Beside
    from spillway.agents.metrics import StageMetrics
    from spillway.checkpoint.logs import Logs
    from spillway.lineage.ports import Clock, Spans
    from spillway.lineage.values.codec import Decoder
    from spillway.topology.spec import StageSpec


async def _nothing() -> None:
    """Read no logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverParts:
    """What a stage's driver is built of, beside its config."""

    known: Known
    work: BatchWork
    guard: CrashWatch
    metrics: StageMetrics
    clock: Clock
    spans: Spans
    decoder: Decoder
    threads: int
    """Workers that are there from the start."""
    crew: Crew | Members | VariantCrews | None = None
    beside: Beside | None = None
    reload_schemas: Callable[[], bool] = bool
    lookups: Lookups | None = None
    logs: Logs | None = None
    """Version logs, where a stage before this one has a state; `read_logs` reads them to their ends."""
    read_logs: Callable[[], Awaitable[None]] = _nothing
    payload_bytes: int = PAYLOAD_BYTES
    """Of the parts that wait in joins (`Rule`)."""
    markers: bool = False
    """Whether offsets of its input are those of transactions' markers, too."""


class Built(NamedTuple):
    """A driver, and what whoever changes it while it serves has to know."""

    stage: Stage
    planner: Planner
    core: StageCore
    route: Any  # of an ensemble or of variants
    rereading: Rereading


def build_driver(config: StageConfig, parts: DriverParts) -> Built:
    """Build the driver of one front. Call in a running loop, in its process.

    Raises UsageError for an ensemble's selection that is none, and ModelError for a model that cannot have its cache.
    """
    pipeline, spec, metrics, work = config.pipeline, config.spec, parts.metrics, parts.work
    name, limits = pipeline.spec.name, pipeline.spec.limits.merged()
    route = _route(config, parts)
    intake = Intake(
        predecessors=tuple(pipeline.graph.predecessors[config.stage]),
        decoder=parts.decoder,
        signature=None if pipeline.graph.is_join(config.stage) else stage_signature(spec, parts.known),
        slo=pipeline.spec.slo,
        metrics=metrics,
        places=pipeline.spec.places,
        needs=None if spec.variants is None else reads_needs(cast("Variants", route), spec.variants.app),
    )
    core = _core(config, parts, route)
    planner = Planner(
        *(pipeline.spec, core.view, core),
        clock=parts.clock,
        decoder=parts.decoder,
        metrics=metrics,
        reload_schemas=parts.reload_schemas,
    )
    rereading = Rereading(config.topic, parts.spans, intake)
    inputs = of_stage(group_id(name, config.stage), config.topic)
    context = Context(
        intake=intake,
        emission=Emission(name, config.stage, limits, parts.clock.now),
        memory=Memory(config.topic, parts.spans, intake),
        metrics=metrics,
        tally=Tally(metrics, planner.observed),
        inputs=Inputs(config.topic, inputs, metrics.stopped, markers=parts.markers),
        rereading=rereading,
        guard=parts.guard,
        remembered=work.remembered,
        reload_schemas=parts.reload_schemas,
        read_logs=parts.read_logs,
        own=bool if parts.lookups is None else parts.lookups.own,
    )
    return Built(Stage(core, parts.clock, context), planner, core, route, rereading)


def _route(config: StageConfig, parts: DriverParts) -> Ensemble | Variants | None:
    if config.spec.ensemble is not None:
        return route_of(config.spec, config.replica, parts.lookups)
    return None if config.spec.variants is None else variants_route(config.spec)


def _core(config: StageConfig, parts: DriverParts, route: Any) -> StageCore:
    """Build the core, and show its figures; members and their route hear of its lanes."""
    metrics, crew = parts.metrics, parts.crew
    core = build_core(
        config,
        durability=parts.logs,
        threads=parts.threads,
        steps=build_steps(config.spec, parts),
        route=route,
        payload_bytes=parts.payload_bytes,
    )
    if isinstance(crew, Members):
        lanes = cast("LanedCore", core).lanes
        crew.serve(lanes, route)
        metrics.lanes = MemberMetrics(lanes, route.stats, crew)
    elif isinstance(crew, VariantCrews):
        lanes = cast("LanedCore", core).lanes
        route.waits, route.ready = lanes.waits, lanes.ready
        metrics.lanes = VariantMetrics(lanes, route.stats, crew.wanted, None)
    return core


def build_steps(spec: StageSpec, parts: DriverParts) -> list[Step]:
    """Build the steps of a stage, which show their figures in its metrics. Raises ModelError as `build_driver`."""
    return [step for _, build in _STEPS if (step := build(spec, parts)) is not None]


def _last_moments(spec: StageSpec, parts: DriverParts) -> Step | None:
    if parts.beside is not None and parts.beside.dispatch.release is not None:
        return parts.beside.dispatch.release
    return Deadlines() if spec.default is not None or spec.lanes else None


def _default(spec: StageSpec, parts: DriverParts) -> Step | None:
    if spec.default is None:
        return None
    step = DefaultAnswer()
    parts.metrics.defaults = lambda: step.given
    return step


def _tables(_spec: StageSpec, parts: DriverParts) -> Step | None:
    return None if parts.lookups is None else TokenWait(parts.lookups)


def _cache(spec: StageSpec, parts: DriverParts) -> Step | None:
    if spec.cache is None:
        return None
    check_remembers(f"stage {spec.name!r}", spec, parts.known)
    cache: PredictionCache[Work] = PredictionCache(spec.cache.bytes)
    parts.metrics.cache = cache
    return CacheStep(cache, Keys(spec.model or "emulated", str(spec.version or parts.known.version)).of)


def _dispatch(_spec: StageSpec, parts: DriverParts) -> Step | None:
    parts.metrics.dispatch = None if parts.beside is None else parts.beside.dispatch
    return parts.metrics.dispatch


_STEPS: Final[tuple[tuple[str, Callable[[StageSpec, DriverParts], Step | None]], ...]] = (
    ("default, coding.release, ensemble, variants", _last_moments),
    ("default", _default),
    ("tables", _tables),
    ("cache", _cache),
    ("coding, copies", _dispatch),
)
"""By section, in the order in which queries come to them."""
