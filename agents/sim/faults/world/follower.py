"""One process's reader of logs: its own `Logs`, fed record by record, as late as its network has it."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from spillway.agents.sim.faults.world.records import versions_of
from spillway.checkpoint.following import Following

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spillway.agents.memory.broker import Place
    from spillway.agents.sim.faults.world.records import Record
    from spillway.agents.sim.faults.world.world import Process, StateWorld
    from spillway.checkpoint.logs import Logs

_AT_ONCE = 3  # records that are read before others get to do something
_PAUSE = 0.002  # seconds until the next ones are, at most
_LOOKS = 3  # in the time after which a log that was not read is not known any more


class Follower:
    """Reads the logs of some shards, a few records at a time.

    How far a log is known is `spillway.checkpoint.following`'s, as live: also after a pause, or when what is read comes
    late.
    """

    def __init__(
        self,
        world: StateWorld,
        process: Process,
        logs: Logs,
        places: Iterable[Place],
        changed: Callable[[], object],
    ) -> None:
        self.logs = logs
        self.positions = dict.fromkeys(places, 0)
        self._world = world
        self._process = process
        self._changed = changed
        away = world.scenario.lag / 2
        self._followings: dict[Place, Following[Callable[[], object]]] = {
            place: Following(away, world.now) for place in self.positions
        }
        for place in self.positions:
            world.subscribe(process, self._log_of(place), partial(self.poll, place))
            process.after(world.latency(), partial(self._keep_up, place, away / _LOOKS))

    # What is done with what is read -----------------------------------------------------------------------------

    def _log_of(self, place: Place) -> Place:
        return versions_of(place)

    def _take(self, place: Place, record: Record) -> None:
        if record.body is not None:
            self.logs.take(place, record.body.record)

    def _caught_up(self, place: Place) -> None:
        self.logs.caught_up(place)

    def _fell_behind(self, place: Place) -> None:
        self.logs.fell_behind(place)

    # Reading ---------------------------------------------------------------------------------------------------

    @property
    def current(self) -> bool:
        """Whether all logs are known up to where they ended not long ago."""
        return all(following.current for following in self._followings.values())

    def _keep_up(self, place: Place, period: float) -> None:
        self.poll(place)
        self._process.after(period, partial(self._keep_up, place, period))

    def poll(self, place: Place) -> None:
        """Read some of what is there, unless it comes late to this process."""
        world, topic, following = self._world, self._log_of(place), self._followings[place]
        wait = world.reads_at(self._process, topic, world.now) - world.now
        if wait > 0:
            self._process.after(wait, partial(self.poll, place))
            return
        if following.wants_end(world.now):
            following.end(world.now, world.broker.end(topic))
        if following.behind(world.now):
            self._fell_behind(place)
            if not self._process.alive:
                return
        there = list(islice(world.broker.read(topic, self.positions[place]), _AT_ONCE + 1))
        for record in there[:_AT_ONCE]:
            self.positions[place] = record.offset + 1
            self._take(place, record)
            if not self._process.alive:
                return
        if len(there) > _AT_ONCE:
            self._process.after(_PAUSE * world.random.random(), partial(self.poll, place))
        else:
            self.positions[place] = world.broker.end(topic)  # the last records may have been compacted away
        caught_up, fulfilled = following.read(self.positions[place])
        if caught_up:
            self._caught_up(place)
        self._changed()
        for then in fulfilled:
            then()

    def read_to_ends(self, then: Callable[[], None]) -> None:
        """Have `then` called when all logs were read to where they end now."""
        left = set(self.positions)
        if not left:
            then()

        def reached(place: Place) -> None:
            left.discard(place)
            if not left:
                then()

        for place in self.positions:
            self.read_to_end(place, partial(reached, place))

    def read_to_end(self, place: Place, then: Callable[[], object]) -> None:
        """Have `then` called when a log was read to where it ends now."""
        self._followings[place].wish(then)
        self._process.after(0.0, partial(self.poll, place))

    def read_up(self) -> bool:
        broker = self._world.broker
        return self.current and all(
            next(broker.read(self._log_of(place), position), None) is None for place, position in self.positions.items()
        )
