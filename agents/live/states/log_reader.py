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

Only who needs a log now follows it record by record, as each record then costs a request of each reader. The other
logs rest: they are read twice a second, at once where an end is wished for, and when `look` is called.
"""

from __future__ import annotations

import logging
import queue
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from spillway.agents.live.clock import since_boot
from spillway.agents.live.states.partition_reading import PartitionReading, Slot
from spillway.agents.live.states.worker import Worker
from spillway.checkpoint import claims, version_log
from spillway.checkpoint.damage import Damage
from spillway.checkpoint.following import Following
from spillway.checkpoint.logs import Logs
from spillway.lineage import reasons
from spillway.lineage.errors import CheckpointError, WireError
from spillway.lineage.marks import foreign
from spillway.lineage.replication import Base, Claim, Fence, Manifest, Yield
from spillway.lineage.values.replication import ReplicationDecoder
from spillway.producers.kafka.records import record_of
from spillway.topology.topics import control, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from spillway.agents.live.states.worker import Post
    from spillway.lineage.errors import SpillwayError
    from spillway.lineage.marks import Place
    from spillway.lineage.ports import Record
    from spillway.producers.connection import ClientSettings

__all__ = ["AWAY_SECONDS", "CONTROL", "Listener", "LogReader", "LogRecord", "LogRecords", "LogsFeed", "Read"]

# What one record of a version log, or of the control log, says, and what happens with one that cannot be read.
#
# * In a version log any record that cannot be read, or stands under a key that is not its own, is *damaged*, whoever
#   wrote it. It is handed on as `spillway.checkpoint.damage.Damage`, and stops its shard (rule 16).
# * In the control log such a record is reported with its place, counted, and passed over: a claim gives nothing without
#   its fence, and of two claimants that take the same epoch, as neither has read the other's claim, the first fence in
#   the version log is the one that counts.
#
# A manifest that requires a version of a shard which the pipeline does not have is reported here, and handed on: it
# counts for nobody (`spillway.checkpoint.logs`).

log = logging.getLogger(__name__)

CONTROL: Final[Place] = ("", 0)  # the place of the control log
LogRecord = Fence | Base | Manifest | Claim | Yield
_ENCODING: Final = "surrogateescape"  # keys that are no text come back as they were
_FIX: Final = "only the pipeline's stages and 'spillway state' may write there: find the other writer and stop it"


class Read(NamedTuple):
    """A record as it was read."""

    place: Place
    key: str
    record: LogRecord | Damage | None  # None: a tombstone
    offset: int
    topic: str = ""

    @property
    def raw_key(self) -> bytes:
        return self.key.encode(errors=_ENCODING)

    @property
    def where(self) -> str:
        return _where(self.topic, self.place[1], self.offset)


class LogRecords:
    """Decodes the records of some logs. For the reader's thread."""

    def __init__(
        self, places: Mapping[Slot, Place], decoder: ReplicationDecoder, relearn: Callable[[], bool] = bool
    ) -> None:
        """`places`: by topic and partition. `relearn` is asked for an unknown schema: whether more are known now."""
        self.bad = 0  # records that were reported
        self._places = places
        self._shards = frozenset(place for place in places.values() if place != CONTROL)
        self._decoder = decoder
        self._relearn = relearn

    def read(self, raw: Record) -> Read | None:
        """Read a record; None for one that was reported and is passed over."""
        place = self._places[raw.topic, raw.partition]
        name = (raw.key or b"").decode(errors=_ENCODING)
        if raw.value is None:
            return Read(place, name, None, raw.offset, raw.topic)
        try:
            record = self._decoded(raw.value)
            own = _key(record, place)
        except WireError as error:
            release = "; did another release write it?" if error.reason == reasons.UNKNOWN_SCHEMA else ""
            return self._unreadable(raw, place, f"cannot be read: {error}{release}")
        if own != name:
            return self._unreadable(raw, place, f"has the key {raw.key!r:.80} instead of {own!r:.80}")
        if isinstance(record, Fence):  # by the broker's clock, or none: a claimant's own may be days ahead
            record = replace(record, at_us=raw.timestamp * 1_000 if raw.log_append else 0)
        if isinstance(record, Manifest) and (mark := foreign(record.requires, self._shards)) is not None:
            text = (
                "requires {}, of a shard that the pipeline does not have, and is ignored; was the pipeline file "
                "changed?"
            )
            self._report(raw, text.format(mark))
        return Read(place, name, record, raw.offset, raw.topic)

    def _decoded(self, value: bytes) -> LogRecord:
        try:
            return cast("LogRecord", self._decoder.record(value))
        except WireError as error:
            if error.reason != reasons.UNKNOWN_SCHEMA or not self._relearn():
                raise
        return cast("LogRecord", self._decoder.record(value))

    def _unreadable(self, raw: Record, place: Place, why: str) -> Read | None:
        if place == CONTROL:
            self._report(raw, f"{why}; it is ignored")
            return None
        key = raw.key or b""
        log.error("%s, under the key %r, is damaged: it %s", _at(raw), key, why)
        damage = Damage(key, _at(raw), f"it {why}")
        return Read(place, key.decode(errors=_ENCODING), damage, raw.offset, raw.topic)

    def _report(self, raw: Record, text: str) -> None:
        self.bad += 1
        log.warning("%s %s; %s", _at(raw), text, _FIX)


def _where(topic: str, partition: int, offset: int) -> str:
    return f"the record in {topic}[{partition}] at offset {offset}"


def _at(raw: Record) -> str:
    return _where(raw.topic, raw.partition, raw.offset)


def _key(record: Any, place: Place) -> str:
    """The key that a record must stand under. Raises WireError for one that does not belong in this log."""
    if place == CONTROL and isinstance(record, (Claim, Yield)):
        return claims.key(record)
    if place != CONTROL and isinstance(record, (Fence, Base, Manifest)):
        return version_log.key(record)
    raise WireError(reasons.BAD_INPUT, f"a {type(record).__name__} does not belong in this log")


AWAY_SECONDS: Final = 30.0  # half of the shortest min.compaction.lag.ms that the topics are made with
LOOK_SECONDS: Final = 0.5  # after which a log that rests is read
_ROUND: Final = 0.05  # seconds that a wish waits at most before it is looked at, where no log has a record


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
        soon: Collection[Place] | None = None,
        away: float = AWAY_SECONDS,
        decoder: ReplicationDecoder | None = None,
        relearn: Callable[[], bool] = bool,
    ) -> None:
        """`soon`: the logs that do not rest (None: none does); see `follow`.

        `relearn` is asked, in the reader's thread, when a schema is unknown: whether the decoder knows more now.
        """
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
        self._rare: frozenset[Slot] = frozenset() if soon is None else self._slots_but(soon)
        self._resting: frozenset[Slot] = frozenset()  # all that is rare, or nothing
        self._look_at = 0.0
        self._asked: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._worker = Worker("version-logs", self._run, post, listener.failed)
        self._worker.start()

    def read_to_end(self, place: Place, then: Callable[[], object]) -> None:
        """Have `then` posted when a log was read up to the end that it has from now on. From any thread."""
        slot = next(slot for slot, known in self._places.items() if known == place)
        self._asked.put(partial(self._wish, slot, then))

    def read_to_ends(self, then: Callable[[], object]) -> None:
        """The same of all version logs: `then` is posted once, after the last of them."""
        unread = {place for place in self._places.values() if place != CONTROL}

        def reached(place: Place) -> None:
            unread.discard(place)
            if not unread:
                then()

        for place in tuple(unread):
            self.read_to_end(place, partial(reached, place))

    def follow(self, soon: Collection[Place]) -> None:
        """Have these logs followed record by record from now on, and the others rest. From any thread."""
        self._asked.put(partial(self._follow, self._slots_but(soon)))

    def look(self) -> None:
        """Have the logs that rest read now. From any thread."""
        if self._resting:
            self._asked.put(self._look)

    def close(self) -> None:
        """End the thread; nothing is posted after that."""
        self._worker.stop()
        self._asked.put(bool)
        self._worker.join()

    def _slots_but(self, soon: Collection[Place]) -> frozenset[Slot]:
        return frozenset(slot for slot, place in self._places.items() if place not in soon)

    def _run(self) -> None:
        if not self._places:
            return
        reading = PartitionReading(self._settings, self._places, {"client.id": "version-logs"})
        try:
            while not self._worker.stopped:
                self._heed_what_is_asked()
                self._resume(reading)
                self._ask_for_ends(reading)
                records, positions = reading.poll(_ROUND)
                now = since_boot()
                for slot, following in self._logs.items():
                    if following.behind(now):
                        self._worker.tell(self._listener.fell_behind, self._places[slot])
                batch = [read for message in records if (read := self._records.read(record_of(message))) is not None]
                if batch:
                    self._worker.tell(self._listener.records, batch)
                for slot, following in self._logs.items():
                    self._reached(slot, following, positions.get(slot, 0))
                if not self._rare.isdisjoint(positions):
                    self._let_rest(reading)
        finally:
            reading.close()

    def _heed_what_is_asked(self) -> None:
        """Do what is asked; wait for it where all logs rest, until it is time to look."""
        wait = max(0.0, self._look_at - since_boot()) if len(self._resting) == len(self._logs) else 0.0
        try:
            self._asked.get(timeout=wait)()
            while True:
                self._asked.get_nowait()()
        except queue.Empty:
            return

    def _wish(self, slot: Slot, then: Callable[[], object]) -> None:
        self._logs[slot].wish(then)
        self._look()

    def _follow(self, rare: frozenset[Slot]) -> None:
        self._rare = rare
        self._look()

    def _look(self) -> None:
        self._look_at = 0.0

    def _resume(self, reading: PartitionReading) -> None:
        if self._resting and since_boot() >= self._look_at:
            reading.resume(self._resting)
            self._resting = frozenset()

    def _let_rest(self, reading: PartitionReading) -> None:
        if not any(following.wanted for following in self._logs.values()):
            reading.pause(self._rare)
            self._resting, self._look_at = self._rare, since_boot() + LOOK_SECONDS

    def _ask_for_ends(self, reading: PartitionReading) -> None:
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


# What is durable and what is dead, kept up to date: `spillway.checkpoint.logs.Logs` fed by a reader of all version
# logs.
#
# For those who are no members of a shard: the gate, and the stateless stages behind stateful ones. `LogsFeed.logs` is
# their `Durability`; it belongs to the thread that `post` calls in, which hears of every change by `on_change`. What
# rests on a shard whose log is damaged waits until the damage is passed (`spillway.checkpoint.damage`); the rest goes
# on.


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
        self.logs.on_unread = self._reader.look

    @property
    def ready(self) -> bool:
        return not self._unread

    def read_to_ends(self, then: Callable[[], object]) -> None:
        """Have `then` called, in the owner's thread, once all logs were read to the ends that they have from now on."""
        self._reader.read_to_ends(then)

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
