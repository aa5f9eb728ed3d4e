"""What a gate works with: its ports, and what else it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from spillway.agents.core.gate import GateCore
    from spillway.agents.core.outcomes import Release
    from spillway.agents.run.gate_wire import GateWire
    from spillway.agents.run.inputs import Inputs
    from spillway.lineage.ports import Clock, PulledInput, Spans, Transactions, Work

GATHER_SECONDS: Final = 0.02  # between two transactions, at most
_GATHER_SHARE: Final = 0.05  # of the SLO, at most
POLL_SECONDS: Final = 0.5
HELD_POLL_SECONDS: Final = 0.001


@dataclass(slots=True, frozen=True)
class GateTopics:
    """The topics of one pipeline that the gate touches."""

    outcomes: str
    egress: str
    dead: str


class GateRecorder(Protocol):
    """Counts what the gate does."""

    received: int
    aborted: int
    duplicates: Callable[[], int]
    held: Callable[[], int]
    committed: dict[int, int]

    def accepted(self, way: float) -> None:
        """Count a report that took so many seconds to the gate."""
        ...

    def released(self, now: float, releases: Sequence[Release], seconds: float, gathered: float) -> None:
        """Count outcomes that readers see from `now` on, after a transaction of so many seconds and a gathering."""
        ...

    def transferred(self, now: float, ways: Sequence[float]) -> None:
        """Learn how long reports took until their transaction was over."""
        ...

    def wrote_letters(self, reasons: Sequence[str]) -> None: ...

    def report_waits(self, waits: Callable[[], frozenset[int]]) -> None:
        """Ask which partitions stand still for other stages' versions, now and then."""
        ...


class GateVersions(Protocol):
    """What is known of states, by the version logs."""

    def news(self) -> bool:
        """Return whether something was read that may decide anything. Raises SpillwayError where nothing can be."""
        ...

    async def read_to_ends(self) -> None:
        """Read the logs to the ends that they have from now on."""
        ...


async def _nothing() -> None:
    pass


@dataclass(slots=True, frozen=True, kw_only=True)
class GateContext:
    """What a gate works with. `name` is for messages."""

    name: str
    topics: GateTopics
    input: PulledInput
    transactions: Transactions
    spans: Spans
    clock: Clock
    sleep: Callable[[float], Awaitable[None]]
    begin: Callable[[Callable[[], Any]], Work]  # has a function run while the gate goes on
    reread: Callable[[Sequence[tuple[int, int]]], Work]  # the same of `Spans.pick`, of the outcomes
    wire: GateWire
    inputs: Inputs
    recorder: GateRecorder
    core: Callable[[], GateCore]  # a new one for each beginning
    mend: Callable[[], Awaitable[None]] = _nothing  # called before partitions are taken over
    tell: Callable[[float], None] = lambda _now: None  # called every round
    versions: GateVersions | None = None  # None where no stage has a state
    gather: float = GATHER_SECONDS  # between two transactions where they fill all time
    poll: float = POLL_SECONDS  # how long to wait for outcomes where nothing is in hand
    held_poll: float = HELD_POLL_SECONDS  # where some wait for versions, payloads or JSON, which come another way
    trace: Callable[[Release, float], None] | None = None  # called with each release that readers see, and since when


def gather_of(slo: float) -> float:
    """Return how long outcomes of a pipeline with this SLO may gather between two transactions, in seconds."""
    return min(GATHER_SECONDS, _GATHER_SHARE * slo)
