"""Records of a driver, as the broker of a memory world keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillway.agents.memory.broker import Standing
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

    def record(self, *, values: bool = True) -> Record:
        return Record(
            self.topic,
            self.partition,
            self.offset,
            int(self.appended * 1000),
            log_append=True,
            key=self.key,
            value=self.value if values else None,
            headers=self.headers,
            stripped=not values,
        )


def kept(outgoing: Outgoing) -> Kept:
    return Kept(outgoing.topic, outgoing.partition, outgoing.key, outgoing.value, tuple(outgoing.headers))
