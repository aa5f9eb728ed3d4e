"""What one record of a version log, or of the control log, says; and what is none of theirs.

Whoever may write to these topics can write what no member writes. Such a record is reported once for each time that it
is read, with its place, counted, and passed over: every reader passes over the same ones, so all judge alike, and one
record does not fell a pipeline. Passed over is:

* what stands under no key of the log's, or under another key than its own: compaction loses nothing by it;
* what cannot be decoded under a manifest's, a claim's or a yield's key. Should it have replaced one in a compacted log:
  the next manifest stands for the one before it, and a claim gives nothing without its fence. A reign that began below
  a version which somebody has seen as durable is still found (`checkpoint.logs`).

A manifest that requires a version of a shard which the pipeline does not have is reported here, and handed on: it
counts for nobody (`checkpoint.logs`). CheckpointError is raised, and the reader ends, only where going on would mean to
guess (rule 16): a fence or a base that cannot be read has replaced one by which others judge; and a record of the log's
with an unknown schema is of a newer release, whose members judge by it.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from checkpoint import claims, version_log
from lineage import reasons
from lineage.errors import CheckpointError, WireError
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

_OF_CONTROL: Final = re.compile(r"(claim|yield)/.+/\d+/\d+/.*", re.DOTALL)
_OF_VERSIONS: Final = re.compile(r"fence/\d+/.*|base/\d+|manifest/\d+/\d+", re.DOTALL)
_SKELETON: Final = ("fence/", "base/")
_FIX: Final = "only the pipeline's stages and 'spillway state' may write there: find out who else does, and stop it"


class Read(NamedTuple):
    """A record as it was read."""

    place: Place
    key: str
    record: LogRecord | None  # None: a tombstone
    offset: int
    topic: str = ""

    @property
    def where(self) -> str:
        """Its place, in words."""
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
        try:
            name = (message.key() or b"").decode()
        except UnicodeDecodeError:
            self._report(message, f"stands under the key {message.key()!r:.80}, which is no text")
            return None
        if value is None:
            return Read(place, name, None, message.offset(), message.topic())
        try:
            record = self._decoded(value, name, place)
            own = _key(record, place)
        except WireError as error:
            self._unreadable(message, name, place, error)
            return None
        if own != name:
            if place != CONTROL and name.startswith(_SKELETON):
                raise _replaced(message, name, f"it is that of {own!r:.80}")
            self._report(message, f"stands under the key {name!r:.80} instead of {own!r:.80}")
            return None
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

    def _unreadable(self, message: Any, name: str, place: Place, error: WireError) -> None:
        if place != CONTROL and name.startswith(_SKELETON):
            raise _replaced(message, name, str(error)) from error
        if error.reason == reasons.UNKNOWN_SCHEMA and _is_ours(name, place):
            raise CheckpointError(
                f"{_at(message)}, {name!r:.80}, cannot be read: {error}; a newer release has written it: run that one "
                "for all processes of the pipeline"
            ) from error
        self._report(message, f"cannot be read: {error}")

    def _report(self, message: Any, text: str) -> None:
        self.bad += 1
        log.warning("%s %s; it is passed over; %s", _at(message), text, _FIX)


def _where(topic: str, partition: int, offset: int) -> str:
    return f"the record in {topic}[{partition}] at offset {offset}"


def _at(message: Any) -> str:
    return _where(message.topic(), message.partition(), message.offset())


def _is_ours(name: str, place: Place) -> bool:
    """Whether a key is one that the log's own records may stand under."""
    return (_OF_CONTROL if place == CONTROL else _OF_VERSIONS).fullmatch(name) is not None


def _replaced(message: Any, name: str, why: str) -> CheckpointError:
    return CheckpointError(
        f"{_at(message)} stands under the key {name!r:.80} and is no such record: {why}; the one that it replaces says "
        f"which versions are dead, so nobody can judge without it: stop the pipeline, and append that one again; {_FIX}"
    )


def _key(record: Any, place: Place) -> str:
    """The key that a record must stand under. Raises WireError for one that has no place in this log."""
    if place == CONTROL and isinstance(record, (Claim, Yield)):
        return claims.key(record)
    if place != CONTROL and isinstance(record, (Fence, Base, Manifest)):
        return version_log.key(record)
    raise WireError(reasons.BAD_INPUT, f"a {type(record).__name__} has no place in this log")
