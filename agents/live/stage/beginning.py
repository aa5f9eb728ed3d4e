"""What the processes of stages have in common when they begin, and how they say why they cannot go on."""

from __future__ import annotations

import gc
import os
import threading
from typing import TYPE_CHECKING, Any, Final

from aiokafka.errors import KafkaError

from agents.live.inputs import writes_transactions
from lineage.errors import BrokerError, SpillwayError

if TYPE_CHECKING:
    from agents.live.stage.config import StageProcessConfig


POLL: Final = 0.02  # seconds between two looks at what is left
LAST_COMMIT: Final = 5.0
END: Final = 10.0  # seconds for everything after draining; then the process ends in any case


class Bound:
    """Ends the process so many seconds after `begin`, whatever hangs: its orchestrator counts on it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun = False

    def begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        timer = threading.Timer(self._seconds, os._exit, (1,))
        timer.daemon = True
        timer.start()


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
