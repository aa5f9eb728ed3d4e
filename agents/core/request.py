"""A request as a stage's core sees it: identity, deadline, where it came from; its payload is opaque."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.lineage.hops import Hop
    from spillway.lineage.message import OutcomeKind


@dataclass(slots=True, frozen=True)
class Loss:
    """Why a request does not go on from this stage."""

    kind: OutcomeKind  # dropped or failed
    reason: str  # a code of spillway.lineage.reasons
    text: str = ""
    short: float = 0.0  # seconds by which the estimate missed the deadline; 0 where none was made


class Taken(Enum):
    """What a record is to the core that it was delivered to."""

    FIRST = "first"  # the first copy: the core owes it `done`
    REPEATED = "repeated"  # a later copy: done already
    STRAY = "stray"  # taken before, or below the start: not to be touched
    DEAD = "dead"  # it rests on a state that no recovery reproduces: done already, and not remembered
    KEPT = "kept"  # a later copy of one that may turn out dead: it comes again, or is done, when that is known


@dataclass(slots=True)
class Received:
    """What a core counted of the records that came to it."""

    received: int = 0  # repetitions included
    duplicates: int = 0  # repetitions, by the hop or by the id, and what came too late to count
    stray: int = 0  # of a partition that is not ours (any more), or taken before: not counted as received
    dead: int = 0  # records that rest on a state which no recovery reproduces, whenever that was found


# The choices made so far: chooser stage -> the successors it chose (empty: the request ends there).
Path = dict[str, tuple[str, ...]]
_SUSPECT = 2  # deaths


@dataclass(slots=True)
class Delivery:
    """One message from a stage's input topic, decoded by the driver. All times in seconds (deadline, sent: unix)."""

    request_id: str
    partition: int
    offset: int
    sent: float
    deadline: float
    predecessor: str  # a stage's name, or "" for the ingress
    hop: Hop | None  # the predecessor's; None at the ingress
    path: Path = field(default_factory=dict)
    # Empty for a result. For a tombstone: the predecessors of the join (or the terminals, at the gate) that it
    # stands for, none of which will deliver.
    lost: tuple[str, ...] = ()
    appended: float = 0.0  # unix seconds, the broker's append time
    payload: Any = None  # never read by the core
    kind: str = ""  # the sender's name for requests of this sort (`spillway.agents.core.paths`)
    unusable: Loss | None = None  # why it cannot be used as it is; the core's own
    copy: Any = None  # behind a stateful stage: what it rests on (`spillway.agents.core.speculation`); the core's own
    size: int = 0  # bytes that the payload takes in memory, as the driver reckons
    dropped: bool = False  # the payload was, and is read again when it is needed (`spillway.agents.core.joins`)
    offline: bool = False  # it is of low priority (`spillway.agents.core.offline`)
    ids: tuple[str, ...] = ()  # of a message of many truths: theirs, each of which counts once
    repeated: tuple[int, ...] = ()  # the places of those among them that came before; the core's own
    truths: Sequence[Delivery] = ()  # each as a message of its own; never read by the core


@dataclass(slots=True)
class Request:
    """A request that waits, or runs, in one stage."""

    request_id: str
    partition: int
    sent: float  # t_s of PARD, unix seconds
    deadline: float  # unix seconds
    arrived: float  # t_r: ready at this stage
    parts: tuple[Delivery, ...]  # what it was made from: one, or one per predecessor that delivered
    path: Path
    entered: float = 0.0  # t_b: entered a forming batch
    started: float = 0.0  # t_e: its batch started
    deaths: int = 0  # workers that ended with a batch of it, and may have ended because of it
    offline: bool = False  # it runs when no other waits (`spillway.agents.core.offline`)

    @property
    def suspect(self) -> bool:
        """Whether it is to be run by itself, so that it is known whose fault another end is."""
        return self.deaths >= _SUSPECT
