"""How a replica takes part in its consumer group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """How a replica takes part in its consumer group. Durations in seconds."""

    group: str
    instance: str  # static: a restarted replica of this name gets its partitions back
    connection: dict[str, Any] = field(default_factory=dict)  # aiokafka's keyword arguments
    session: float = 10.0
    heartbeat: float = 0.3
    rebalance: float = 15.0
    fetch_wait: float = 0.25  # the longest that the broker holds a fetch without records
    fetch_bytes: int = 256 * 1024  # per partition and fetch; bounds what a waiting replica holds
    chunk_records: int = 1000
    reads: Callable[[int], bool] | None = None  # which partitions the group takes at all; None: every one
