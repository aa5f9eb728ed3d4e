"""What a process has sent and the broker does not have yet: in order for each partition, whatever becomes of it.

As with an idempotent producer: of the messages to one partition a beginning arrives when the process dies, and none
comes before an earlier one. A process that is stopped may have handed over some of them already; the others go when
it goes on, whatever has happened meanwhile.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from spillway.agents.memory.broker import R

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.memory.broker import Place
    from spillway.agents.memory.processes import Process
    from spillway.agents.memory.world import World


@dataclass(slots=True)
class Flight(Generic[R]):
    """Records that arrive together: one, or a transaction."""

    records: tuple[tuple[Place, R], ...]
    acked: Callable[[], None]
    lost: bool = False
    frozen: bool = False
    flown: int = 0  # how often it has left


class Wire(Generic[R]):
    """One process's producer."""

    def __init__(self, world: World[R], process: Process) -> None:
        self._world = world
        self._process = process
        process.wires.append(self)
        self._lanes: dict[Place, deque[Flight[R]]] = {}
        self._lands: dict[Place, float] = {}
        self.slow = 0.0  # seconds that every message takes longer

    def send(self, place: Place, record: R, acked: Callable[[], None] = lambda: None, takes: float = 0.0) -> None:
        """Send a record; `acked` is called when the broker has it. `takes`: seconds beside the network's."""
        self.send_together(((place, record),), acked, takes)

    def send_together(
        self, records: tuple[tuple[Place, R], ...], acked: Callable[[], None], takes: float = 0.0
    ) -> None:
        lane = records[0][0]
        stopped = self._process.withheld is not None
        flight = Flight[R](records, acked, frozen=stopped)
        self._lanes.setdefault(lane, deque()).append(flight)
        if not stopped:
            self._fly(lane, flight, takes)

    def _fly(self, lane: Place, flight: Flight[R], takes: float) -> None:
        world = self._world
        when = world.now + world.latency() + takes + self.slow
        when = self._lands[lane] = world.answering(max(when, self._lands.get(lane, 0.0)))
        flight.flown += 1
        flown = flight.flown
        world.at(when, lambda: self._land(lane, flight, flown))

    def _land(self, lane: Place, flight: Flight[R], flown: int) -> None:
        if flight.flown != flown:  # it was called back
            return
        self._lanes[lane].popleft()
        if flight.lost:
            return
        world = self._world
        for place, record in flight.records:
            world.broker.append(place, record)
        self._process.after(world.latency(), flight.acked)

    def stopped(self) -> None:
        """Keep some of what is under way: it has not left the process yet."""
        for flights in self._lanes.values():
            gone = self._world.random.randint(0, len(flights))
            for index, flight in enumerate(flights):
                if index >= gone:
                    flight.frozen = True
                    flight.flown += 1

    def goes_on(self) -> None:
        for lane, flights in self._lanes.items():
            for flight in flights:
                if flight.frozen:
                    flight.frozen = False
                    self._fly(lane, flight, 0.0)

    def died(self) -> None:
        for flights in self._lanes.values():
            kept = self._world.random.randint(0, len(flights))
            for index, flight in enumerate(flights):
                flight.lost = index >= kept or flight.frozen

    def is_quiet(self, *but: Place) -> bool:
        return not any(flights for lane, flights in self._lanes.items() if lane not in but)
