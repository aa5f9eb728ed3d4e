"""Reads version logs, and the control log, for everybody who judges by them (rule 2).

One thread with a consumer of its own decodes what comes and posts it, record by record in each log's order. What is
posted, by whichever of `Listener`'s calls:

* `records`: a batch of what was read, tombstones (`record` is None) included, as they are records of the log too.
* `caught_up`: a log was read to the end that it had when reading began, or began anew after `fell_behind`.
* `fell_behind`: the reader was away for so long that the log may have been compacted where it has still to read. It
  comes before any record that was read after the gap.
* `failed`: the reader has ended, as the cluster refuses it. Whoever judges must end too.

`read_to_end(place, then)` has `then` posted, behind the records, when a log was read up to the end that it has after
the call: for claims, and for lease checks. A broker that restarts is waited for.
"""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Final, Protocol

from agents.live.clock import since_boot
from agents.live.states.log_records import CONTROL, LogRecords, Read
from agents.live.states.partition_reading import PartitionReading, Slot
from agents.live.states.worker import Worker
from checkpoint.following import Following
from lineage.values.replication import ReplicationDecoder
from topology.topics import control, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agents.live.states.mailbox import Post
    from lineage.errors import SpillwayError
    from lineage.marks import Place
    from producers.connection import ClientSettings

__all__ = ["AWAY_SECONDS", "CONTROL", "Listener", "LogReader", "Read"]

AWAY_SECONDS: Final = 30.0  # half of the shortest min.compaction.lag.ms that the topics are made with
_ROUND: Final = 0.01  # seconds that a wish waits at most before it is looked at


class Listener(Protocol):
    """Who is told. All calls come through `post`."""

    def records(self, batch: Sequence[Read]) -> None:
        """Take records, in each log's order."""

    def caught_up(self, place: Place) -> None:
        """Note that a log was read to the end that it had when reading began."""

    def fell_behind(self, place: Place) -> None:
        """Note that what is read next of a log may have gaps."""

    def failed(self, error: SpillwayError) -> None:
        """Note that nothing more will be read."""


class LogReader:
    """Reads the version logs of `places` in `pipeline`. It starts at once; `close` ends it."""

    def __init__(
        self,
        settings: ClientSettings,
        pipeline: str,
        places: Iterable[Place],
        listener: Listener,
        post: Post,
        *,
        with_control: bool = False,
        away: float = AWAY_SECONDS,
        decoder: ReplicationDecoder | None = None,
        relearn: Callable[[], bool] = bool,
    ) -> None:
        """`relearn` is asked, in the reader's thread, when a schema is unknown: whether the decoder knows more now."""
        self._settings = settings
        self._places: dict[Slot, Place] = {
            (versions(pipeline, stage), shard): (stage, shard) for stage, shard in places
        }
        if with_control:
            self._places[control(pipeline), 0] = CONTROL
        self._listener = listener
        self._records = LogRecords(self._places, decoder or ReplicationDecoder(), relearn)
        now = since_boot()
        self._logs: dict[Slot, Following[Callable[[], object]]] = {slot: Following(away, now) for slot in self._places}
        self._wishes: queue.SimpleQueue[tuple[Slot, Callable[[], object]]] = queue.SimpleQueue()
        self._worker = Worker("version-logs", self._run, post, listener.failed)
        self._worker.start()

    def read_to_end(self, place: Place, then: Callable[[], object]) -> None:
        """Have `then` posted when a log was read up to the end that it has from now on. From any thread."""
        slot = next(slot for slot, known in self._places.items() if known == place)
        self._wishes.put((slot, then))

    def close(self) -> None:
        """End the thread; nothing is posted after that."""
        self._worker.stop()
        self._worker.join()

    def _run(self) -> None:
        if not self._places:
            return
        reading = PartitionReading(self._settings, self._places, {"client.id": "version-logs"})
        try:
            while not self._worker.stopped:
                self._ask_for_ends(reading)
                records, positions = reading.poll(_ROUND)
                now = since_boot()
                for slot, following in self._logs.items():
                    if following.behind(now):
                        self._worker.tell(self._listener.fell_behind, self._places[slot])
                batch = [read for message in records if (read := self._records.read(message)) is not None]
                if batch:
                    self._worker.tell(self._listener.records, batch)
                for slot, following in self._logs.items():
                    self._reached(slot, following, positions.get(slot, 0))
        finally:
            reading.close()

    def _ask_for_ends(self, reading: PartitionReading) -> None:
        while not self._wishes.empty():
            slot, then = self._wishes.get()
            self._logs[slot].wish(then)
        for slot, following in self._logs.items():
            now = since_boot()
            if following.wants_end(now):
                end = reading.end(slot)
                if end is not None:
                    following.end(now, end)

    def _reached(self, slot: Slot, following: Following[Callable[[], object]], position: int) -> None:
        caught_up, fulfilled = following.read(position)
        if caught_up:
            self._worker.tell(self._listener.caught_up, self._places[slot])
        for then in fulfilled:
            self._worker.tell(then)
