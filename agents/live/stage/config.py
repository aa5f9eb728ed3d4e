"""What a stage is told in any world, and what its process is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, Self

from spillway.agents.live.registry import Address
from spillway.agents.models.loading import TORCH_THREADS
from spillway.topology import topics
from spillway.topology.ensembles import in_effect
from spillway.topology.sizes import sized

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from spillway.producers.connection import ClientSettings
    from spillway.topology.ensembles import Served
    from spillway.topology.load import Pipeline
    from spillway.topology.sizes import Size
    from spillway.topology.spec import StageSpec
    from spillway.topology.variant_sections import VariantsSpec


class Claimed(Protocol):
    """A claim to write a stage's sizes (`spillway.agents.supervise.ownership`)."""

    @property
    def epoch(self) -> int: ...

    def claim(self, stopping: Callable[[], bool], above: int) -> bool: ...

    def keep(self, on_end: Callable[[], object], stopping: Callable[[], bool]) -> None: ...

    def leave(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StageConfig:
    """What one front of a stage is. Durations in seconds."""

    pipeline: Pipeline
    stage: str
    replica: int  # of a standby, until it takes a replica's place: which standby
    policy: str | None = None  # overrides the stage's
    plan_period: float | None = None  # between two words of its state to the other stages; None: as the policies say
    standby: bool = False  # wait to be told whose place to take
    cautious: bool = False  # its processes died without any progress: run the model in processes of its own

    @property
    def spec(self) -> StageSpec:
        return self.pipeline.spec.stage(self.stage)

    @property
    def topic(self) -> str:
        """The topic of its input."""
        name, before = self.pipeline.spec.name, self.pipeline.graph.predecessors[self.stage]
        return topics.stage_input(name, self.stage) if before else topics.ingress(name)

    @property
    def workers(self) -> int:
        """How many workers this front has; a standby has as many as any front may need."""
        return self.spec.workers.of_front(0 if self.standby else self.replica)

    @property
    def processes(self) -> bool:
        spec = self.spec
        if spec.lanes or spec.variants is not None:
            return True
        return spec.model is not None and spec.state is None and (self.cautious or spec.workers.where != "thread")

    def sized(self, sizes: dict[bytes, Size], ensembles: Mapping[bytes, Served]) -> Self:
        """The same with as many workers, and with the ensembles, that the table of sizes says."""
        spec = in_effect(sized(self.pipeline.spec, sizes), self.pipeline.frame, ensembles)
        return replace(self, pipeline=replace(self.pipeline, spec=spec))

    def with_variants(self, section: VariantsSpec) -> Self:
        """The same with other variants of its stage."""
        spec = self.pipeline.spec
        stages = [
            each.model_copy(update={"variants": section}) if each.name == self.stage else each for each in spec.stages
        ]
        changed = spec.model_copy(update={"stages": tuple(stages)})
        return replace(self, pipeline=replace(self.pipeline, spec=changed))

    def taking(self, replica: int) -> Self:
        """What a standby is once it takes a replica's place."""
        return replace(self, replica=replica, standby=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProcessConfig(StageConfig):
    """What a stage process needs to know. Durations in seconds."""

    settings: ClientSettings
    run_dir: Path
    drain: float = 10.0  # the longest that queued queries are waited for at SIGTERM
    commit_interval: float = 0.5
    torch_threads: int = TORCH_THREADS
    session: float = 10.0
    heartbeat: float = 0.3
    metrics: Address = Address()  # noqa: RUF009 - immutable
    claims: Callable[[ClientSettings, str, Sequence[str]], Claimed] | None = None
    """Makes the claim under which a stage's variants are scaled; None: nobody scales them."""
    member_name: str = ""  # of a stateful stage: what claims and beats call this process; empty: made of its start
