"""What is simulated: stages that generate, that run batches, or that run threads, and the queries that visit them.

What a query needs at each stage is drawn before the run, so that all policies are compared on the same queries.
Times are seconds, lengths tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spillway.agents.core.policy import StageFacts, StageView

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.rag.generation import TokenProfile


@dataclass(frozen=True, slots=True)
class Generator:
    """A stage that generates, with continuous batching."""

    profile: TokenProfile
    until_first: bool = False  # whether its first token already is the query's outcome
    typical: tuple[int, int, int] = (1, 1, 1)  # prompt, output and sequences beside, of the offline profile

    def duration(self, _count: int) -> float:
        prompt, output, beside = self.typical
        return self.profile.prefill(prompt, beside) + (output - 1) * self.profile.step(beside)


@dataclass(frozen=True, slots=True)
class Batches:
    """A stage whose batches take alpha + beta * n."""

    batch: int
    alpha: float
    beta: float
    instances: int = 1

    def duration(self, count: int) -> float:
        return self.alpha + self.beta * count


@dataclass(frozen=True, slots=True)
class Threads:
    """A stage that serves each request on a thread, as long as that request takes; it uses no accelerator."""

    threads: int
    profile: float  # seconds that are expected before any was served

    def duration(self, _count: int) -> float:
        return self.profile


@dataclass(frozen=True, slots=True)
class TokenStage:
    """One stage, and what it comes after; a stage after several joins them all."""

    name: str
    kind: Generator | Batches | Threads
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenPlan:
    """A pipeline: stages in an order in which each comes after its predecessors; the first is the only root."""

    stages: tuple[TokenStage, ...]
    slo: float
    period: float = 1.0  # of the policies' synchronisation
    successors: Mapping[str, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        after = {
            stage.name: tuple(each.name for each in self.stages if stage.name in each.after) for stage in self.stages
        }
        object.__setattr__(self, "successors", after)

    def view(self, stage: TokenStage) -> StageView:
        facts = {each.name: _facts(each) for each in self.stages}
        return StageView(stage=stage.name, slo=self.slo, facts=facts, successors=self.successors, period=self.period)


def _facts(stage: TokenStage) -> StageFacts:
    kind = stage.kind
    if isinstance(kind, Batches):
        return StageFacts(kind.batch, kind.duration, kind.instances)
    return StageFacts(1, kind.duration, kind.threads if isinstance(kind, Threads) else 1)


@dataclass(frozen=True, slots=True)
class Needs:
    """What each query needs at one stage: lengths where it generates, seconds where it runs on a thread."""

    prompt: NDArray[np.int64] | None = None
    output: NDArray[np.int64] | None = None
    seconds: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True)
class Queries:
    """When queries come (sorted), and what they need by stage; a stage of batches needs nothing of them."""

    due: NDArray[np.float64]
    needs: Mapping[str, Needs]
