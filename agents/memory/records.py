"""Records as a memory world's broker keeps them, and the world of drivers, whose broker keeps these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillway.agents.memory.broker import Standing
from spillway.agents.memory.world import World
from spillway.lineage.ports import Record

if TYPE_CHECKING:
    from spillway.lineage.ports import Headers, Outgoing


@dataclass(slots=True)
class Kept:
    """A record in a log."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    offset: int = -1
    appended: float = 0.0
    standing: Standing = Standing.COMMITTED

    @property
    def timestamp(self) -> int:
        """Unix milliseconds of its append."""
        return int(self.appended * 1000)

    def record(self) -> Record:
        return Record(
            self.topic,
            self.partition,
            self.offset,
            self.timestamp,
            log_append=True,
            key=self.key,
            value=self.value,
            headers=self.headers,
        )


def kept(outgoing: Outgoing) -> Kept:
    return Kept(outgoing.topic, outgoing.partition, outgoing.key, outgoing.value, outgoing.headers)


class DriverWorld(World[Kept]):
    """A world for drivers over ports.

    `partitions`: of each topic that there is; `gaps`: the most offsets that stand between two records.
    """

    def __init__(self, seed: int, partitions: dict[str, int] | None = None, *, gaps: int = 0) -> None:
        super().__init__(seed)
        self.partitions = dict(partitions or {})
        self._gaps = gaps

    def gap(self, _place: tuple[str, int]) -> int:
        return self.random.randint(0, self._gaps) if self._gaps else 0
