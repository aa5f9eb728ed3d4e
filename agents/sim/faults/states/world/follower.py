"""One process's reader of version logs: its own `Logs`, fed record by record, as late as its network has it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from agents.sim.faults.states.world.topics import versions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agents.sim.faults.broker import Place, Record
    from agents.sim.faults.process import Process
    from agents.sim.faults.states.world.state_world import StateWorld
    from checkpoint.logs import Logs


class Follower:
    """Reads the logs of some shards. A record of `own` is shown to `seen`, with whether it counts."""

    def __init__(
        self,
        world: StateWorld,
        process: Process,
        logs: Logs,
        places: Iterable[Place],
        changed: Callable[[], None],
        seen: Callable[[Place, Record, bool], None] | None = None,
    ) -> None:
        self.logs = logs
        self.positions = dict.fromkeys(places, 0)
        self.void = 0
        self._world = world
        self._process = process
        self._changed = changed
        self._seen = seen
        self._ends = {place: world.broker.end(versions_of(place)) for place in self.positions}
        self._behind = set(self.positions)
        self._wishes: list[tuple[dict[Place, int], Callable[[], None]]] = []
        for place in self.positions:
            world.subscribe(process, versions_of(place), partial(self.poll, place))
            process.after(world.latency(), partial(self.poll, place))

    @property
    def current(self) -> bool:
        """Whether all logs were read up to where they ended at first."""
        return not self._behind

    def poll(self, place: Place) -> None:
        """Read what is there."""
        topic = versions_of(place)
        for record in self._world.broker.read(topic, self.positions[place]):
            self.positions[place] = record.offset + 1
            counts = record.body is not None and self.logs.take(place, record.body.record)
            if self._seen is not None:
                self._seen(place, record, counts)
                if not self._process.alive:
                    return
        self.positions[place] = self._world.broker.end(topic)  # the last records may have been compacted away
        if place in self._behind and self.positions[place] >= self._ends[place]:
            self.logs.caught_up(place)
            self._behind.discard(place)
        self._changed()
        self._fulfil()

    def read_to_ends(self, then: Callable[[], None]) -> None:
        """Have `then` called when all logs were read to where they end now."""
        self._wishes.append(({place: self._world.broker.end(versions_of(place)) for place in self.positions}, then))
        self._fulfil()

    def _fulfil(self) -> None:
        positions = self.positions
        due = [wish for wish in self._wishes if self.current and all(positions[p] >= e for p, e in wish[0].items())]
        self._wishes = [wish for wish in self._wishes if wish not in due]
        for _, then in due:
            then()

    def was_away(self) -> None:
        """Note that some of what is still to be read may have been compacted."""
        for place in self.positions:
            self.logs.fell_behind(place)
            self._behind.add(place)
            self._ends[place] = self._world.broker.end(versions_of(place))
            self._process.after(self._world.latency(), partial(self.poll, place))

    def read_up(self) -> bool:
        """Whether nothing is left to read."""
        broker = self._world.broker
        return all(
            next(broker.read(versions_of(place), position), None) is None for place, position in self.positions.items()
        )
