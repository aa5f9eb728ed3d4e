"""Reads version logs, and the control log, for everybody who judges by them (rule 2).

Each is followed in the process's `Log`, and decoded on the owner's thread. What `Listener` is told:

* `records`: a batch of what was read, tombstones (`record` is None) included, as they are records of the log too.
* `caught_up`: a log was read to the end that it had when reading began, or began anew after `fell_behind`.
* `fell_behind`: the reader was away for so long that the log may have been compacted where it has still to read. It
  comes before any record that was read after the gap.
* `failed`: the reader has ended, as a log cannot be read on. Whoever judges must end too.

`read_to_end(place, then)` has `then` called, behind the records, when a log was read up to the end that it has after
the call: for claims, and for lease checks. A broker that restarts is waited for.

Only who needs a log now follows it record by record, as each record then costs a request of each reader. The other
logs rest: they are read twice a second, at once where an end is wished for, and when `look` is called.

A log is current once an end was reached that it had, and no longer once more than `away` seconds lie between now and
the asking for the newest end that was reached: what was appended since may have been compacted meanwhile, if `away` is
no less than min.compaction.lag.ms. So that an idle log is told from a broker that is away, ends are asked for a few
times in `away`.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from spillway.checkpoint import claims, version_log
from spillway.checkpoint.damage import Damage
from spillway.checkpoint.logs import Logs
from spillway.lineage import reasons
from spillway.lineage.errors import (
    CheckpointError,
    CorruptError,
    SpillwayError,
    TopicError,
    UnreachableError,
    WireError,
)
from spillway.lineage.marks import foreign
from spillway.lineage.replication import Base, Claim, Fence, Manifest, Yield
from spillway.lineage.values.codec import decoded
from spillway.lineage.values.replication import ReplicationDecoder
from spillway.topology.topics import control, versions

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from spillway.lineage import ports
    from spillway.lineage.errors import BrokerError
    from spillway.lineage.marks import Place
    from spillway.lineage.ports import Bounds, Log, Record, Slot

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
    """Decodes the records of some logs."""

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
            record = cast("LogRecord", decoded(self._decoder.record, raw.value, self._relearn))
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


def shortened(place: str) -> CheckpointError:
    return CheckpointError(
        f"{place} ends before the offset that was read: the topic was recreated, or a broker lost records; "
        "stop the pipeline, and compare the members' states before you serve it again"
    )


def _corrupt(what: str) -> CheckpointError:
    return CheckpointError(
        f"{what}; make another replica of the partition its leader; if there is none, export the states "
        "('spillway state export') and import them under a new name of the pipeline"
    )


def failure_of(error: BrokerError) -> SpillwayError | None:
    """Return what a reader of states ends with, for what keeps its log from being read; None where time may heal it."""
    if isinstance(error, UnreachableError | TopicError):
        log.warning("%s; waiting for it", error)
        return None
    return _corrupt(str(error)) if isinstance(error, CorruptError) else error


AWAY_SECONDS: Final = 30.0  # half of the shortest min.compaction.lag.ms that the topics are made with
LOOK_SECONDS: Final = 0.5  # after which a log that rests is read
_ASKS: Final = 5  # for a log's end, in `away`


class Listener(Protocol):
    """Who is told, on the owner's thread."""

    def records(self, batch: Sequence[Read]) -> None:
        """Take records, in each log's order."""

    def caught_up(self, place: Place) -> None:
        """Note that a log was read to the end that it had when reading began."""

    def fell_behind(self, place: Place) -> None:
        """Note that what is read next of a log may have gaps."""

    def failed(self, error: SpillwayError) -> None:
        """Note that nothing more will be read."""


@dataclass(slots=True)
class _Followed:
    """A log that is followed."""

    place: Place
    following: ports.Following = field(init=False)
    asked: int = 0  # ends that were asked for and are not reached
    rests: bool = False
    current: bool = False
    known: float = -math.inf  # when the newest end that was reached was asked for


class LogReader:
    """Reads the version logs of `places` in `pipeline`. It starts at once; `close` ends it.

    Its owner is called by `log` and calls `tick` in every round, or has a loop call it (`tick_on`).
    """

    def __init__(
        self,
        log: Log,
        pipeline: str,
        places: Iterable[Place],
        listener: Listener,
        *,
        with_control: bool = False,
        soon: Collection[Place] | None = None,
        away: float = AWAY_SECONDS,
        decoder: ReplicationDecoder | None = None,
        relearn: Callable[[], bool] = bool,
        now: Callable[[], float],
        look: float = LOOK_SECONDS,
        records: Callable[..., LogRecords] = LogRecords,
    ) -> None:
        """`now`: seconds of a clock that goes on while the host is suspended. `look`: of it, between two rounds.

        `soon`: the logs that do not rest (None: none does); see `follow`.

        `relearn` is asked when a schema is unknown: whether the decoder knows more now.
        """
        slots = {(versions(pipeline, stage), shard): (stage, shard) for stage, shard in places}
        if with_control:
            slots[control(pipeline), 0] = CONTROL
        self._listener = listener
        self._records = records(slots, decoder or ReplicationDecoder(), relearn)
        self._away, self._now, self._every = away, now, look
        self._soon = soon
        self._closed = False
        self._tick_at = now() + look
        self._logs = {place: _Followed(place) for place in slots.values()}
        for slot, place in slots.items():
            one = self._logs[place]
            accept, cut = partial(self._accept, one), partial(self._lacks, slot)
            one.following = log.follow(slot, None, accept, cut=cut, trouble=self._cannot_read)
            self._ask(one)

    def read_to_end(self, place: Place, then: Callable[[], object]) -> None:
        """Have `then` called when a log was read up to the end that it has from now on."""
        self._ask(self._logs[place], then)

    def read_to_ends(self, then: Callable[[], object]) -> None:
        """The same of all version logs: `then` is called once, after the last of them."""
        unread = [place for place in self._logs if place != CONTROL]

        def reached(place: Place) -> None:
            unread.remove(place)
            if not unread:
                then()

        for place in tuple(unread):
            self.read_to_end(place, partial(reached, place))

    def follow(self, soon: Collection[Place]) -> None:
        """Follow these logs record by record from now on; the others rest."""
        self._soon = soon
        self.look()

    def look(self) -> None:
        """Read the logs that rest, now."""
        for one in self._logs.values():
            self._look(one)

    def tick(self) -> None:
        """Do what is due: look at logs that rest, and at how far all are known."""
        now = self._now()
        if self._closed or now < self._tick_at:
            return
        self._tick_at = now + self._every
        for one in self._logs.values():
            self._heed_gap(one)
            if not one.asked and now - one.known >= self._away / _ASKS:
                self._ask(one)
        self.look()

    def tick_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call `tick` on a loop until this is closed."""
        self.tick()
        if not self._closed:
            loop.call_later(self._every, self.tick_on, loop)

    def close(self) -> None:
        """End reading; nothing is told after that."""
        self._closed = True
        for one in self._logs.values():
            one.following.stop()

    def _look(self, one: _Followed) -> None:
        if one.rests:
            one.rests = False
            one.following.resume()

    def _let_rest(self, one: _Followed) -> None:
        if self._soon is not None and one.place not in self._soon and not one.asked:
            one.rests = True
            one.following.pause()

    def _accept(self, one: _Followed, records: Sequence[Record]) -> None:
        if self._closed:
            return
        self._heed_gap(one)
        try:
            batch = [read for record in records if (read := self._records.read(record)) is not None]
        except Exception as error:  # it must not be passed over
            log.exception("a log cannot be read")
            text = f"the log of {one.place} cannot be read: {error!r}"
            self._fail(error if isinstance(error, SpillwayError) else CheckpointError(text))
            return
        if batch:
            self._listener.records(batch)
        self._let_rest(one)

    def _heed_gap(self, one: _Followed) -> None:
        """Report a log that may have been compacted unread, before anything that was read after that."""
        if one.current and self._now() - one.known > self._away:
            one.current = False
            self._listener.fell_behind(one.place)
            if not one.asked:
                self._ask(one)

    def _ask(self, one: _Followed, then: Callable[[], object] = bool) -> None:
        asked_at = self._now()
        one.asked += 1
        one.following.when_read(lambda _end: self._reached(one, asked_at, then))
        self._look(one)

    def _reached(self, one: _Followed, asked_at: float, then: Callable[[], object]) -> None:
        if self._closed:
            return
        self._heed_gap(one)
        one.asked -= 1
        if self._now() - asked_at > self._away:  # who would judge by that is told that he fell behind
            self._ask(one, then)
            return
        one.known = asked_at
        if not one.current:
            one.current = True
            self._listener.caught_up(one.place)
        then()
        self._let_rest(one)

    def _lacks(self, slot: Slot, _bounds: Bounds) -> None:
        self._fail(shortened(f"{slot[0]}[{slot[1]}]"))

    def _cannot_read(self, error: BrokerError) -> None:
        failure = failure_of(error)
        if failure is not None:
            self._fail(failure)

    def _fail(self, error: SpillwayError) -> None:
        if not self._closed:
            self.close()
            self._listener.failed(error)


# What is durable and what is dead, kept up to date: `spillway.checkpoint.logs.Logs` fed by a reader of all version
# logs.
#
# For those who are no members of a shard: the gate, and the stateless stages behind stateful ones. `LogsFeed.logs` is
# their `Durability`; it belongs to the owner, who hears of every change by `on_change`. What rests on a shard whose log
# is damaged waits until the damage is passed (`spillway.checkpoint.damage`); the rest goes on.


class LogsFeed:
    """The version logs of a pipeline, as far as `reader` has read them."""

    def __init__(
        self,
        log: Log,
        pipeline: str,
        places: Iterable[Place],
        on_change: Callable[[], object],
        on_failed: Callable[[SpillwayError], object],
        *,
        logs: type[Logs] = Logs,
        **reading: Any,
    ) -> None:
        """`places`: every shard of every stateful stage. `on_failed` is called once: then the process must end."""
        places = tuple(places)
        self.logs = logs(places)
        self._on_change = on_change
        self._on_failed = on_failed
        self._unread = set(places)
        self.reader = LogReader(log, pipeline, places, self, **reading)
        self.logs.on_unread = self.reader.look

    @property
    def ready(self) -> bool:
        return not self._unread

    def records(self, batch: Sequence[Read]) -> None:
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
        self._unread.discard(place)
        self.logs.caught_up(place)
        self._on_change()

    def fell_behind(self, place: Place) -> None:
        self.logs.fell_behind(place)
        self._unread.add(place)

    def failed(self, error: SpillwayError) -> None:
        self.reader.close()
        self._on_failed(error)
