"""What the processes of a run live in: virtual time, chance, the broker, and the record of what they do."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from agents.sim.faults.broker import Broker
from agents.sim.faults.history import Execution, FaultRun, Tenure

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.core.request import Request
    from agents.sim.faults.broker import Place
    from agents.sim.faults.scenario import Scenario

START = 1_000_000.0  # unix seconds
_SLOW = 0.05  # share of messages with a long delay


class World(ABC):
    """What processes use. `agents.sim.faults.play` makes them, breaks them and says when all is over."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.random = Random(seed)  # noqa: S311 (a simulation)
        self.now = START
        self.broker = Broker(lambda: self.now, self.wake)
        self.result = FaultRun()
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = count()
        self._incarnations = count(1)

    @abstractmethod
    def wake(self, place: Place) -> None:
        """Tell the readers of a place, a moment later, that there is something new."""

    @abstractmethod
    def committed(self, stage: str, replica: int, core: object) -> None:
        """Hear that the broker has a commit of the process that holds `core`."""

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.events, (when, next(self._serial), what))

    def latency(self) -> float:
        return self.random.uniform(0.02, 0.2) if self.random.random() < _SLOW else self.random.uniform(0.0005, 0.005)

    @staticmethod
    def duration(size: int, /) -> float:
        return 0.004 + 0.001 * size

    def next_incarnation(self) -> int:
        return next(self._incarnations)

    def tenure(self, stage: str, partition: int, committed: int) -> int:
        number = len(self.result.tenures)
        self.result.tenures[number] = Tenure(stage, partition, number, committed)
        return number

    def executed(self, stage: str, request: Request, tenure: int) -> None:
        first = min(part.offset for part in request.parts)
        self.result.executions.append(Execution(stage, request.request_id, request.partition, first, tenure))
