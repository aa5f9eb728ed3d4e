"""What a stage works with beside its core and its ports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from spillway.agents.core.actions import Result, Work
    from spillway.agents.core.batching import Batch
    from spillway.agents.core.crash_suspects import Place
    from spillway.agents.metrics import StageMetrics
    from spillway.agents.run.emission import Emission
    from spillway.agents.run.inputs import Inputs
    from spillway.agents.run.intake import Intake
    from spillway.agents.run.memory import Memory, Rereading
    from spillway.agents.run.tally import Tally


class Workers(Protocol):
    """Who runs batches, and calls `Stage.executed` when one is done."""

    @property
    def busy(self) -> set[Place]:
        """The records that they have been running for a while, within their time-out."""
        ...

    def submit(self, worker: int, batch: Batch, /) -> None: ...


class Dispatch(Workers, Protocol):
    """Who runs copies of batches, or parity batches, beside the workers; and batches, where it has numbers below 0."""

    def pump(self, now: float) -> None: ...


class CrashWatch(Protocol):
    """What knows which records a model has been running for a while, or ended its process."""

    @property
    def busy(self) -> set[Place]: ...

    def look(self, committed: Mapping[int, int]) -> None:
        """Learn what other processes died of; `committed`: of the partitions that are ours."""
        ...


async def _nothing() -> None:
    """Read no logs."""


@dataclass(slots=True, kw_only=True)
class Context:
    """What a stage works with beside its core and its ports."""

    intake: Intake
    emission: Emission
    memory: Memory
    rereading: Rereading
    metrics: StageMetrics
    tally: Tally
    inputs: Inputs
    guard: CrashWatch
    remembered: Callable[[Work, Any, float], Result]
    """Makes the result of a request whose answer was known; called off the loop."""
    reload_schemas: Callable[[], bool]
    """Looks for writers' schemas that are not known yet; True if it found one. Called off the loop."""
    read_logs: Callable[[], Awaitable[None]] = _nothing
    """Reads the version logs, where the stage goes by any, to the ends that they have from now on."""
    own: Callable[[Collection[int]], object] = bool
    """Called with the partitions that are this replica's, before it reads them."""
