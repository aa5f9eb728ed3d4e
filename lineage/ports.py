"""What a driver may ask of the world, and what the world promises it.

A driver is asyncio code that decides nothing and knows no Kafka: it is given these ports. Each has two worlds behind
it, Kafka and memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(slots=True)
class Record:
    """A record as it lies in a partition of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int  # unix milliseconds: of its append where `log_append`, else what its sender has said
    log_append: bool
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str | bytes, bytes | None]]  # in order; a key that is no UTF-8 is bytes
    stripped: bool = False  # whether it had a value that was not kept
