"""What a member writes to the control log and to its shard's version log by itself: claims, yields, fences and bases.

Nobody appends a key twice: after a fence that would move a record behind it, where it is void
(`spillway.checkpoint.version_log`). Where it is not known whether a record stands, the output tells, and the process
must end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spillway.agents.run import crash_points
from spillway.checkpoint import claims, version_log
from spillway.lineage.errors import CheckpointError
from spillway.lineage.ports import Outgoing
from spillway.lineage.replication import Base, Claim, Fence, Yield
from spillway.lineage.values.replication import encode
from spillway.topology.topics import control, versions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spillway.lineage.marks import Place
    from spillway.lineage.ports import Output

_STEPS: Final = {Claim: "claim", Fence: "fence"}


class Appended(NamedTuple):
    """What comes back when a record is stored."""

    step: str | None


class LogAppender:
    """Appends for one place."""

    def __init__(self, output: Output, pipeline: str, place: Place) -> None:
        self.topics = (control(pipeline), versions(pipeline, place[0]))
        self._output, self._partition = output, place[1]
        self._appended: set[str] = set()

    def append(self, record: Claim | Yield | Fence | Base) -> None:
        """Append a record.

        Raises CheckpointError for one that was appended before, and WireError for one that cannot be.
        """
        to_control = isinstance(record, (Claim, Yield))
        key = claims.key(record) if isinstance(record, (Claim, Yield)) else version_log.key(record)
        if key in self._appended:
            raise CheckpointError(
                f"the record {key!r} was appended before; appending it again could change its meaning"
            )
        value = encode(record)
        self._appended.add(key)
        step = _STEPS.get(type(record))
        if step is not None:
            crash_points.at(f"before-{step}")
        topic, partition = (self.topics[0], 0) if to_control else (self.topics[1], self._partition)
        self._output.send(Outgoing(topic, partition, key.encode(), value), Appended(step))

    @staticmethod
    def stored(tokens: Iterable[Any]) -> list[Any]:
        """Pass the crash points of what is stored of it, and return the other tokens."""
        rest = []
        for token in tokens:
            if not isinstance(token, Appended):
                rest.append(token)
            elif token.step is not None:
                crash_points.at(f"after-{token.step}")
        return rest
