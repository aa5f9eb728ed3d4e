"""What a reign is made with: what its member has, whoever reigns, and what comes back of a message that it sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from spillway.agents.core.actions import Executed
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from spillway.agents.core.actions import Emit
    from spillway.agents.core.batching import Batch
    from spillway.agents.core.crash_suspects import Suspects
    from spillway.agents.metrics import StageMetrics
    from spillway.agents.run.emission import Emission
    from spillway.agents.run.intake import Intake
    from spillway.agents.run.memory import Rereading
    from spillway.agents.run.tally import Tally
    from spillway.checkpoint.capture import Captured
    from spillway.checkpoint.reign import Write
    from spillway.lineage.marks import Version
    from spillway.lineage.ports import Clock, Output
    from spillway.lineage.replication import Output as Contained


class Jobs(Protocol):
    """Runs functions off the loop, one after the other."""

    def submit(self, run: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run `run` after what was submitted before; `done` is called on the loop with what it returned."""


class UpdateError(ModelError):
    """An update that raised: its state may be half changed."""


@dataclass(slots=True)
class Computed(Executed):
    """How the computation of a batch went."""

    changes: bool = False  # whether there is an update to run
    guilty: int = 0  # queries whose update raised on a copy


@dataclass(slots=True)
class Updated:
    """How an update went."""

    touched: tuple[str, ...]  # keys of a keyed state
    seconds: float
    error: UpdateError | None = None  # the state may be half changed


class ShardWork(Protocol):
    """What is done with a batch off the loop."""

    def compute(self, machine: Any, batch: Batch, *, tried: bool = False) -> Computed:
        """Compute a batch. `tried`: on a copy of the state first."""

    def update(self, machine: Any, batch: Batch) -> Updated:
        """Change the state by a batch that was computed."""


class Publisher(Protocol):
    """What a reign writes to its stage's table (`spillway.agents.live.stateful.publishing`)."""

    def touched(self, keys: Iterable[str]) -> None: ...

    def due(self) -> set[str]: ...

    def rows(self, keys: Iterable[str], n: int) -> dict[bytes, bytes]: ...

    def taken(self, rows: Mapping[bytes, bytes | None], n: int) -> None: ...

    def durable(self, n: int) -> None: ...

    def publish(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardContext:
    """What a member has, whoever reigns."""

    clock: Clock
    intake: Intake
    emission: Emission
    metrics: StageMetrics
    tally: Tally
    output: Output
    work: ShardWork
    models: Jobs
    copies: Jobs
    reload_schemas: Callable[[], bool]
    crashed: Callable[[BaseException], None]
    may_emit: Callable[[], bool]
    reads_on: Callable[[], bool]  # whether the input is read on; if not, until a version has become durable
    excuse: Callable[[int], None]  # that so much of the input is held for a join's sake
    rereading: Rereading
    suspects: Suspects
    begin_anew: Callable[[str], None]  # a reign, from the newest complete version, as this one's state is no good


class ReignWriter(Protocol):
    """Writes the versions of one epoch, one at a time; it says `completed` for each."""

    def write(self, order: Write[Captured], outputs: tuple[Contained, ...]) -> None:
        """Write a version's chunks."""

    def seal(self, version: Version) -> None:
        """Let its manifest be appended when its chunks are acknowledged."""

    def durable(self, version: Version) -> None:
        """Note the newest durable version of the epoch: what is older may be tombstoned."""

    def close(self) -> None:
        """Write nothing more."""


class Sent(NamedTuple):
    """What comes back when a message of a reign is stored; without an emit it was one of the base's."""

    reign: object  # the driver of the reign that sent it; only told from others
    emit: Emit | None
