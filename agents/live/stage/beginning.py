"""What the processes of stages have in common when they begin, and how they say why they cannot go on."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaError

from agents.live.inputs import writes_transactions
from lineage.errors import BrokerError, SpillwayError

if TYPE_CHECKING:
    from agents.live.stage.config import StageProcessConfig

# A stage keeps tens of thousands of small objects (ids of queries, offsets) and makes hardly any cycles; with Python's
# own thresholds a quarter of its time goes into looking through them.
_GC_THRESHOLDS = (10_000, 20, 50)


def nothing_taken(_number: int, _frame: object) -> None:
    """End at once: before the process joins its group there is nothing to drain."""
    raise SystemExit(0)


def look_through_rarely() -> None:
    """What has been loaded stays: no collection of garbage need look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def as_failure(error: BaseException | None) -> SpillwayError:
    if isinstance(error, SpillwayError):
        return error
    if isinstance(error, KafkaError):
        return BrokerError(f"Kafka: {error}")
    return SpillwayError(f"{type(error).__name__}: {error}")


def transacted(config: StageProcessConfig) -> bool:
    return writes_transactions(config.pipeline.spec, config.pipeline.graph.predecessors[config.stage])


def reading_of(config: StageProcessConfig) -> dict[str, Any]:
    """How a stage's input is read, as aiokafka's keyword arguments: committed records alone where one sends so."""
    return config.settings.aiokafka() | ({"isolation_level": "read_committed"} if transacted(config) else {})
