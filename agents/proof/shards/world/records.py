"""What lies in the logs of a run, and where: messages as objects, with what they were made of.

Version logs, states and claims are compacted: a keyed record has its key where others have their request's id, and
None as its body where it is a tombstone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway.agents.memory.broker import Standing
from spillway.lineage.replication import Base, Contents, Fence, Manifest
from spillway.topology import topics

if TYPE_CHECKING:
    from spillway.agents.core.request import Path
    from spillway.agents.memory.broker import Place
    from spillway.lineage.hops import Hop

PIPELINE = "p"
INGRESS, OUTCOMES, EGRESS = "ingress", "outcomes", "egress"  # topics that are no stage's input
CONTROL: Place = (topics.control(PIPELINE), 0)
VERSIONS, STATE, BEATS = ".versions", ".state", ".beat"


def is_input(place: Place) -> bool:
    """Return whether a place is what stages and the gate read their work from."""
    return place != CONTROL and place[0] != EGRESS and not place[0].endswith((VERSIONS, STATE, BEATS))


@dataclass(slots=True)
class Record:
    """One message in a log."""

    request_id: str
    body: Any
    sent: float
    deadline: float
    hop: Hop | None = None
    path: Path = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    offset: int = -1
    appended: float = 0.0
    standing: Standing = Standing.COMMITTED
    source: Any = None  # what its sender made it of: for an oracle, no process reads it

    @property
    def key(self) -> Any:
        return self.request_id

    @property
    def value(self) -> Any:
        return self.body


def versions_of(place: Place) -> Place:
    return topics.versions(PIPELINE, place[0]), place[1]


def state_of(place: Place) -> Place:
    return place[0] + STATE, place[1]


def beats_of(place: Place) -> Place:
    """Return where a shard's heartbeats are. Live, one topic has those of all shards."""
    return place[0] + BEATS, place[1]


def again(record: Record) -> Record:
    """Return a record to be sent, which may have been sent before."""
    return replace(record, offset=-1, appended=0.0)


def keyed(key: Any, body: Any) -> Record:
    return Record(key, body, 0.0, 0.0)


class Arrival(NamedTuple):
    """A record of an input, as a driver gets it."""

    topic: str
    partition: int
    offset: int
    timestamp: float  # unix milliseconds
    record: Record
    headers: tuple[Any, ...] = ()
    key: None = None
    value: None = None
    stripped: bool = False


def arrival(place: Place, record: Record) -> Arrival:
    return Arrival(*place, record.offset, record.appended * 1000, record)


class Logged(NamedTuple):
    """The body of a record in a version log; of a manifest with its contents opened."""

    record: Fence | Base | Manifest
    contents: Contents = Contents()
    named: tuple[tuple[bytes, str], ...] = ()  # of each part, in order: the key of its record, and its digest
    state_n: int = 0  # the version that the chunks are of; where batches are logged, an older one
