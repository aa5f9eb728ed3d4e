"""What a stage's core asks its driver to do, and what the driver tells it of an execution."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.core.request import Received, Request
from spillway.lineage.message import StageTiming

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.agents.core.joins import Entry
    from spillway.agents.core.request import Delivery, Loss, Path
    from spillway.agents.core.share import Share
    from spillway.lineage.hops import Hop
    from spillway.lineage.marks import Mark


@dataclass(slots=True, frozen=True)
class Ok:
    """A request that was executed. `payloads`: what goes to each successor; None for the gate. At least one."""

    payloads: Mapping[str | None, Any]
    chosen: tuple[str, ...] | None = None  # at a stage that chooses: its choice, maybe empty; else None
    value: Any = None  # what the model answered, where the stage has a cache
    size: int = 0  # bytes that the value takes
    flags: Mapping[str, Any] | None = None  # what this stage says of the answer (`spillway.lineage.flags`)


@dataclass(slots=True, frozen=True)
class Failed:
    """A request that the model or what surrounds it could not serve."""

    reason: str
    text: str = ""


Result = Ok | Failed


@dataclass(slots=True)
class Executed:
    """How a batch went: one result per request, in their order."""

    results: list[Result]
    seconds: float  # of the model alone
    ended: float = 0.0  # when the model was through, monotonic


DEFAULT: Final = object()
"""As an answer that is known: the stage's default one."""


class EmitKind(Enum):
    """What a message that a stage sends is."""

    RESULT = "result"  # to a successor's input
    TOMBSTONE = "tombstone"  # to a join's input: the senders in `lost` will not deliver
    OUTCOME = "outcome"  # to the gate: a sink's result, or, with `lost`, a loss
    DEAD_LETTER = "dead-letter"  # the message in `source`, which could not be taken as it was


@dataclass(slots=True)
class Work(Request):
    """A request with what the core has to remember of it. Policies and drivers see the Request."""

    share: Any = None  # the partition's state when it was taken; the core's own
    sequence: int = 0  # the first of `offsets`: the identity of the request at this stage
    offsets: tuple[int, ...] = ()  # the input records that are done when all its emits are acknowledged
    pending: int = 0  # emits that are not
    marks: tuple[Mark, ...] = ()  # the versions that it rests on, of all that it was decided by
    case: Any = None  # what waits for those, while they are not durable (`spillway.agents.core.speculation`)
    acknowledged: bool = False  # all emits are, and it waits for the versions alone
    key: bytes = b""  # of its prediction, where a cache is asked (`spillway.agents.core.cache`)
    settled: bool = False  # by an answer; where there is a dispatch, another may come
    made: Ok | None = None  # an answer that a dispatch made, held while an exact one may come
    due: bool = False  # its default answer is asked for, so nobody need run it any more
    final: bool = False  # it is recorded in a version, or about to be: what it rests on is that version's affair

    @property
    def dead(self) -> bool:
        """Whether it rests on something that is dead and was given up for that."""
        return self.case is not None and self.case.dead

    @classmethod
    def of_record(cls, now: float, share: Share, source: Delivery) -> Work:
        offset = source.offset
        return cls(
            source.request_id, share.partition, source.sent, source.deadline, now, (source,), source.path,
            0.0, 0.0, 0, source.offline, share, offset, (offset,),
        )  # fmt: skip

    @classmethod
    def of_entry(cls, now: float, share: Share, entry: Entry, parts: tuple[Delivery, ...]) -> Work:
        return cls(
            entry.request_id, share.partition, entry.sent, entry.deadline, now, parts, entry.path,
            0.0, 0.0, 0, any(part.offline for part in parts), share, entry.first, tuple(entry.offsets),
        )  # fmt: skip


@dataclass(slots=True, eq=False, repr=False)
class Emit:
    """One message to produce. The driver encodes it, sends it to `partition`, and calls `acked` with it."""

    kind: EmitKind
    destination: str | None  # the successor, None for the gate (and for a dead letter)
    hop: Hop
    path: Path
    payload: Any  # a result: as the execution gave it; a loss passed on: the tombstone's payload
    source: Request | Delivery  # whose headers go on: the request, or the record that was never made one
    work: Work | None  # None once acknowledged
    lost: tuple[str, ...] = ()
    loss: Loss | None = None  # of this stage's own making; None where another stage's loss is passed on

    @property
    def request_id(self) -> str:
        """The request's id; empty for a dead letter of a message that has none."""
        return self.source.request_id

    @property
    def partition(self) -> int:
        """The partition to produce to: a request keeps its own along its whole way."""
        return self.source.partition

    def __repr__(self) -> str:
        return f"Emit({self.kind.value}, {self.request_id!r} to {self.destination or 'the gate'}, {self.hop})"


@dataclass(slots=True)
class StageStats(Received):
    """What a stage's core counted since it began."""

    dropped: dict[str, int] = field(default_factory=dict)  # by reason
    failed: dict[str, int] = field(default_factory=dict)
    dead_letters: dict[str, int] = field(default_factory=dict)
    emitted: int = 0


def timing_of(stage: str, request: Request, now: float, executed: float = 0.0, batch: int = 0) -> StageTiming:
    """Give Q, W and D of PARD's eq. 2 for a request, as far as it came by `now` (a dropped one never started)."""
    entered = request.entered or now
    started = request.started or now
    return StageTiming(
        stage=stage,
        queued=max(0.0, entered - request.arrived),
        waited=max(0.0, started - entered),
        executed=executed,
        batch=batch,
        arrived=int(request.arrived * 1e6),
    )
