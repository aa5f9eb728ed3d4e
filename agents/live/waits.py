"""What a process says of its partitions that stand still: that they wait by right, and for how long it may be believed.

The loop that does the work says so, and a thread that goes on when the loop hangs is asked by the watchdog: so what was
said counts for some seconds only. A process that hangs falls silent, and is judged by what it commits.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily

from lineage import metric_names as names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prometheus_client import Metric

LOOK_SECONDS: Final = 1.0
BELIEVED_SECONDS: Final = 5.0


class WaitsTold:
    """The newest word of a process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: tuple[float, frozenset[int]] = (clock(), frozenset())  # replaced whole: it is read by a thread

    @property
    def due(self) -> bool:
        return self._clock() - self._said[0] >= LOOK_SECONDS

    def say(self, partitions: frozenset[int]) -> None:
        self._said = (self._clock(), partitions)

    @property
    def partitions(self) -> frozenset[int]:
        at, said = self._said
        return said if self._clock() - at <= BELIEVED_SECONDS else frozenset()

    def family(self, labels: Sequence[str]) -> Metric:
        family = GaugeMetricFamily(
            names.WAITS, "1 where a partition waits for other stages' versions", labels=(*names.LABELS, names.PARTITION)
        )
        for partition in sorted(self.partitions):
            family.add_metric((*labels, str(partition)), 1.0)
        return family
