"""The version logs and the control log of a run, for those that read them (`spillway.agents.run.log_reader`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from spillway.agents.memory.ports import MemoryLog
from spillway.agents.proof.shards.world.records import Logged
from spillway.agents.run.log_reader import LogRecords, Read

if TYPE_CHECKING:
    from spillway.agents.proof.shards.world.world import StateWorld

_LOOKS: Final = 3  # in the time after which a log that was not read is not known any more


class RunRead(Read):
    """A record as it was read, and the body that it has in a run."""

    body: Any = None


class RunRecords(LogRecords):
    """Reads a run's records, which are objects."""

    def read(self, raw: Any) -> RunRead:
        body = raw.record.body
        said = body.record if isinstance(body, Logged) else body
        place = self._places[raw.topic, raw.partition]
        read = RunRead(place, str(raw.record.request_id), said, raw.offset, raw.topic)
        read.body = body
        return read


class RunLog(MemoryLog):
    """A process's log."""

    @property
    def read_up(self) -> bool:
        """Whether all is read that there is."""
        return all(self._world.is_read(one.slot, one.position) for one in self._followed)


def reading(world: StateWorld) -> dict[str, Any]:
    """Return how a reader of logs reads in a run."""
    away = world.scenario.lag / 2
    return {"away": away, "look": away / _LOOKS, "records": RunRecords, "now": lambda: world.now}
