"""What one record of a version log, or of the control log, says, and what happens with one that cannot be read.

* In a version log any record that cannot be read, or stands under a key that is not its own, is *damaged*, whoever
  wrote it. It is handed on as `checkpoint.damage.Damage`, and stops its shard (rule 16).
* In the control log such a record is reported with its place, counted, and passed over: a claim gives nothing without
  its fence, and of two claimants that take the same epoch, as neither has read the other's claim, the first fence in
  the version log is the one that counts.

A manifest that requires a version of a shard which the pipeline does not have is reported here, and handed on: it
counts for nobody (`checkpoint.logs`).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

from checkpoint import claims, version_log
from checkpoint.damage import Damage
from lineage import reasons
from lineage.errors import WireError
from lineage.marks import foreign
from lineage.replication import Base, Claim, Fence, Manifest, Yield

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agents.live.states.partition_reading import Slot
    from lineage.marks import Place
    from lineage.values.replication import ReplicationDecoder

log = logging.getLogger(__name__)

CONTROL: Final[Place] = ("", 0)  # the place of the control log
LogRecord = Fence | Base | Manifest | Claim | Yield
_ENCODING: Final = "surrogateescape"  # keys that are no text come back as they were
_FIX: Final = "only the pipeline's stages and 'spillway state' may write there: find out who else does, and stop it"


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

    def read(self, message: Any) -> Read | None:
        """Read a record; None for one that was reported and is passed over."""
        place = self._places[message.topic(), message.partition()]
        name = (message.key() or b"").decode(errors=_ENCODING)
        if message.value() is None:
            return Read(place, name, None, message.offset(), message.topic())
        try:
            record = self._decoded(message.value())
            own = _key(record, place)
        except WireError as error:
            release = "; was it another release that wrote it?" if error.reason == reasons.UNKNOWN_SCHEMA else ""
            return self._unreadable(message, place, f"cannot be read: {error}{release}")
        if own != name:
            return self._unreadable(
                message, place, f"stands under the key {message.key()!r:.80} instead of {own!r:.80}"
            )
        if isinstance(record, Fence):  # by the broker's clock, or none: a claimant's own may be days ahead
            kind, at_ms = message.timestamp()
            record = replace(record, at_us=at_ms * 1_000 if kind == TIMESTAMP_LOG_APPEND_TIME else 0)
        if isinstance(record, Manifest) and (mark := foreign(record.requires, self._shards)) is not None:
            text = "requires {}, of a shard that the pipeline does not have, and does not count; was its spec changed?"
            self._report(message, text.format(mark))
        return Read(place, name, record, message.offset(), message.topic())

    def _decoded(self, value: bytes) -> LogRecord:
        try:
            return cast("LogRecord", self._decoder.record(value))
        except WireError as error:
            if error.reason != reasons.UNKNOWN_SCHEMA or not self._relearn():
                raise
        return cast("LogRecord", self._decoder.record(value))

    def _unreadable(self, message: Any, place: Place, why: str) -> Read | None:
        if place == CONTROL:
            self._report(message, f"{why}; it is passed over")
            return None
        key = message.key() or b""
        log.error("%s, under the key %r, is damaged: it %s", _at(message), key, why)
        damage = Damage(key, _at(message), f"it {why}")
        return Read(place, key.decode(errors=_ENCODING), damage, message.offset(), message.topic())

    def _report(self, message: Any, text: str) -> None:
        self.bad += 1
        log.warning("%s %s; %s", _at(message), text, _FIX)


def _where(topic: str, partition: int, offset: int) -> str:
    return f"the record in {topic}[{partition}] at offset {offset}"


def _at(message: Any) -> str:
    return _where(message.topic(), message.partition(), message.offset())


def _key(record: Any, place: Place) -> str:
    """The key that a record must stand under. Raises WireError for one that has no place in this log."""
    if place == CONTROL and isinstance(record, (Claim, Yield)):
        return claims.key(record)
    if place != CONTROL and isinstance(record, (Fence, Base, Manifest)):
        return version_log.key(record)
    raise WireError(reasons.BAD_INPUT, f"a {type(record).__name__} has no place in this log")
