"""What one record of a version log, or of the control log, says; what is damaged, and what is none of theirs.

Whoever may write to these topics can write what no member writes. Such a record is reported once for each time that it
is read, with its place, counted, and passed over: every reader passes over the same ones, so all judge alike, and one
record does not fell a pipeline. Passed over is:

* what nothing marks as the log's own: neither its key nor how its value begins is that of a record of ours, nor within
  a few bits of it; and a good record of another kind under a key of its own;
* in the control log, whatever cannot be read: a claim gives nothing without its fence, and of two claimants that take
  the same epoch, as neither has read the other's claim, the first fence in the version log is the one that counts.

All else in a version log that cannot be read, or that stands under a key which is not its own, is *damaged*: it is
handed on as `checkpoint.damage.Damage`, and its shard stops where a newest version may stand there (rule 16).

A manifest that requires a version of a shard which the pipeline does not have is reported here, and handed on: it
counts for nobody (`checkpoint.logs`). CheckpointError is raised, and the reader ends, where a record of the log's has a
schema that nobody knows: it is of another release, whose members judge by it.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

from checkpoint import claims, version_log
from checkpoint.damage import Damage
from lineage import reasons
from lineage.errors import CheckpointError, WireError
from lineage.marks import foreign
from lineage.replication import Base, Claim, Fence, Manifest, Yield
from lineage.schemas import BASE, CLAIM, FENCE, MANIFEST, MARKER, OWN_FINGERPRINTS, YIELD

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agents.live.states.partition_reading import Slot
    from lineage.marks import Place
    from lineage.values.replication import ReplicationDecoder

log = logging.getLogger(__name__)

CONTROL: Final[Place] = ("", 0)  # the place of the control log
LogRecord = Fence | Base | Manifest | Claim | Yield
_ENCODING: Final = "surrogateescape"  # keys that are no text come back as they were

_OF_CONTROL: Final = re.compile(r"(claim|yield)/.+/\d+/\d+/.*", re.DOTALL)
_OF_VERSIONS: Final = re.compile(r"fence/\d+/.*|base/\d+|manifest/\d+/\d+", re.DOTALL)
_BEGINNINGS: Final = (b"manifest/", b"fence/", b"base/")  # of the keys in a version log
# How the values begin.
_HEADERS: Final = tuple(MARKER + OWN_FINGERPRINTS[kind] for kind in (MANIFEST, FENCE, BASE))
_OF_CLAIMS: Final = tuple(MARKER + OWN_FINGERPRINTS[kind] for kind in (CLAIM, YIELD))
_KEY_BITS: Final = 2  # that a key of ours may differ in at its beginning when it is damaged: other words differ in more
_VALUE_BITS: Final = 8  # of the 80 bits of a header, of which any other bytes differ in about half
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
        """Read a record; None for one that was reported. Raises CheckpointError where nobody may go on."""
        place = self._places[message.topic(), message.partition()]
        value = message.value()
        name = (message.key() or b"").decode(errors=_ENCODING)
        if value is None:
            return Read(place, name, None, message.offset(), message.topic())
        try:
            record = self._decoded(value, name, place)
            own = _key(record, place)
        except WireError as error:
            return self._unreadable(message, name, place, error)
        if own != name:
            why = f"stands under the key {message.key()!r:.80} instead of {own!r:.80}"
            if place != CONTROL:
                return self._damaged(message, place, why)
            self._report(message, why)
            return None
        if isinstance(record, Fence):  # by the broker's clock, or none: a claimant's own may be days ahead
            kind, at_ms = message.timestamp()
            record = replace(record, at_us=at_ms * 1_000 if kind == TIMESTAMP_LOG_APPEND_TIME else 0)
        if isinstance(record, Manifest) and (mark := foreign(record.requires, self._shards)) is not None:
            text = "requires {}, of a shard that the pipeline does not have, and does not count; was its spec changed?"
            self._report(message, text.format(mark))
        return Read(place, name, record, message.offset(), message.topic())

    def _decoded(self, value: bytes, name: str, place: Place) -> LogRecord:
        try:
            return cast("LogRecord", self._decoder.record(value))
        except WireError as error:
            if error.reason != reasons.UNKNOWN_SCHEMA or not _is_ours(name, place) or not self._relearn():
                raise
        return cast("LogRecord", self._decoder.record(value))

    def _unreadable(self, message: Any, name: str, place: Place, error: WireError) -> Read | None:
        begins_as_ours = _near(message.value(), _OF_CLAIMS if place == CONTROL else _HEADERS, _VALUE_BITS)
        if error.reason == reasons.UNKNOWN_SCHEMA and _is_ours(name, place) and not begins_as_ours:
            raise CheckpointError(
                f"{_at(message)}, {name!r:.80}, cannot be read: {error}; another release has written it: run that one "
                "for all processes of the pipeline, or export its states there and import them under a new name"
            ) from error
        if place != CONTROL and (begins_as_ours or _near(message.key() or b"", _BEGINNINGS, _KEY_BITS)):
            return self._damaged(message, place, f"it cannot be read: {error}")
        self._report(message, f"cannot be read: {error}")
        return None

    def _damaged(self, message: Any, place: Place, why: str) -> Read:
        key = message.key() or b""
        log.error("%s, under the key %r, is damaged: %s", _at(message), key, why)
        damage = Damage(key, _at(message), why)
        return Read(place, key.decode(errors=_ENCODING), damage, message.offset(), message.topic())

    def _report(self, message: Any, text: str) -> None:
        self.bad += 1
        log.warning("%s %s; it is passed over; %s", _at(message), text, _FIX)


def _where(topic: str, partition: int, offset: int) -> str:
    return f"the record in {topic}[{partition}] at offset {offset}"


def _at(message: Any) -> str:
    return _where(message.topic(), message.partition(), message.offset())


def _is_ours(name: str, place: Place) -> bool:
    return (_OF_CONTROL if place == CONTROL else _OF_VERSIONS).fullmatch(name) is not None


def _near(found: bytes, ours: tuple[bytes, ...], bits: int) -> bool:
    """Whether bytes begin as one of ours does, but for a few bits."""
    return any(
        len(found) >= len(one) and (int.from_bytes(found[: len(one)]) ^ int.from_bytes(one)).bit_count() <= bits
        for one in ours
    )


def _key(record: Any, place: Place) -> str:
    """The key that a record must stand under. Raises WireError for one that has no place in this log."""
    if place == CONTROL and isinstance(record, (Claim, Yield)):
        return claims.key(record)
    if place != CONTROL and isinstance(record, (Fence, Base, Manifest)):
        return version_log.key(record)
    raise WireError(reasons.BAD_INPUT, f"a {type(record).__name__} has no place in this log")
