"""What is durable and what is dead, kept up to date: `checkpoint.logs.Logs` fed by a reader of all version logs.

For those who are no members of a shard: the gate, and the stateless stages behind stateful ones. `LogsFeed.logs` is
their `Durability`; it belongs to the thread that `post` calls in, which hears of every change by `on_change`. What
rests on a shard whose log is damaged waits until the damage is passed (`checkpoint.damage`); the rest goes on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from agents.live.states.log_reader import LogReader
from checkpoint.damage import Damage
from checkpoint.logs import Logs
from lineage.errors import CheckpointError
from lineage.replication import Base, Fence, Manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agents.live.states.log_reader import Read
    from agents.live.states.worker import Post
    from lineage.errors import SpillwayError
    from lineage.marks import Place
    from producers.connection import ClientSettings


class LogsFeed:
    """The version logs of a pipeline, as far as they were read. `close` ends the reading."""

    def __init__(
        self,
        settings: ClientSettings,
        pipeline: str,
        places: Iterable[Place],
        post: Post,
        on_change: Callable[[], object],
        on_failed: Callable[[SpillwayError], object],
        **reading: Any,
    ) -> None:
        """`places`: every shard of every stateful stage. `on_failed` is called once: then the process must end."""
        places = tuple(places)
        self.logs = Logs(places)
        self._on_change = on_change
        self._on_failed = on_failed
        self._places = places
        self._unread = set(places)
        self._broken = False
        self._reader = LogReader(settings, pipeline, places, self, post, **reading)

    @property
    def ready(self) -> bool:
        return not self._unread

    def read_to_ends(self, then: Callable[[], object]) -> None:
        """Have `then` called, in the owner's thread, once all logs were read to the ends that they have from now on."""
        unread = set(self._places)

        def reached(place: Place) -> None:
            unread.discard(place)
            if not unread:
                then()

        for place in self._places:
            self._reader.read_to_end(place, partial(reached, place))

    def close(self) -> None:
        self._reader.close()

    def records(self, batch: Sequence[Read]) -> None:
        if self._broken:
            return
        for read in batch:
            if read.record is None:
                self.logs.tombstoned(read.place, read.raw_key)
            elif isinstance(read.record, (Fence, Base, Manifest, Damage)):
                try:
                    self.logs.take(read.place, read.record)
                except CheckpointError as error:
                    self.failed(CheckpointError(f"{read.where}: {error}"))
                    return
        self._on_change()

    def caught_up(self, place: Place) -> None:
        if not self._broken:
            self._unread.discard(place)
            self.logs.caught_up(place)
            self._on_change()

    def fell_behind(self, place: Place) -> None:
        self.logs.fell_behind(place)
        self._unread.add(place)

    def failed(self, error: SpillwayError) -> None:
        if not self._broken:
            self._broken = True
            self._on_failed(error)
