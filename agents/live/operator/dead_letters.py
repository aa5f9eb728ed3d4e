"""Dead letters for a person: what lies on `<pipeline>.dead`, and the queries that the letters are about.

A letter holds the record that could not be served, from whichever topic it came. What can be asked again is the query
as its client sent it: the record itself where it came from the ingress, else the record of the same id on the ingress,
which is there for as long as its retention keeps it.

A letter stays where it is. It counts as retried when a letter of a later attempt at its query lies there, or a note: a
letter about the letter itself, written when the query was asked again and predicted.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spillway.lineage import headers as wire
from spillway.lineage.errors import UsageError, WireError
from spillway.lineage.ids import MAX_REQUEST_ID
from spillway.lineage.message import DeadLetter
from spillway.lineage.values.codec import Decoder, encode_dead_letter
from spillway.producers.kafka.reading import Reading
from spillway.producers.schema_log import known_schemas
from spillway.producers.table import write
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from spillway.lineage.message import Query
    from spillway.lineage.ports import Record
    from spillway.producers.connection import ClientSettings
    from spillway.topology.spec import PipelineSpec

RETRY_OF: Final = "x-retry-of"  # the id of the query whose letter this one is asked again for
ATTEMPT: Final = "x-attempt"  # how often it was asked, the first time included
RETRIED: Final = "retried"  # the reason of a note
_EARLIER: Final = 60.0  # seconds before a query's own time that its record is looked for: clocks differ

_Pairs = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter and where it lies."""

    partition: int
    offset: int
    content: DeadLetter

    @property
    def place(self) -> str:
        return _place(self.partition, self.offset)

    @property
    def headers(self) -> _Pairs:
        return [(name.decode("utf-8", "replace"), value) for name, value in self.content.headers]

    @property
    def request_id(self) -> str:
        return wire.identify(self.headers)

    @property
    def attempt(self) -> int:
        return attempt_of(self.headers)

    @property
    def first(self) -> str:
        """The id under which its query was asked at first."""
        return _text(self.headers, RETRY_OF) or self.request_id


@dataclass(frozen=True, slots=True)
class Retry:
    """A query that is to be asked again."""

    request_id: str
    query: Query
    key: str | None  # None: the new request id
    headers: dict[str, str]


class DeadLetters:
    """A pipeline's dead letters. Raises BrokerError, TopicError."""

    def __init__(self, settings: ClientSettings, spec: PipelineSpec) -> None:
        self._settings = settings
        self._spec = spec
        self._topic = topics.dead(spec.name)
        self._ingress = topics.ingress(spec.name)
        self._decoder = Decoder(spec.limits.merged(), known_schemas(settings, spec.name))
        self.noted: set[str] = set()  # places of letters whose queries were predicted when they were asked again
        self.unreadable = 0

    def read(self) -> Iterator[Letter]:
        """All letters, each partition's in order, without the notes."""
        with Reading(self._settings, [(self._topic, n) for n in range(self._spec.partitions)]) as reading:
            for record in reading.to_the_end():
                try:
                    content = self._decoder.dead_letter(record.value or b"")
                except WireError:
                    self.unreadable += 1
                    continue
                if content.topic == self._topic:
                    self.noted.add(_place(content.partition, content.offset))
                    continue
                yield Letter(record.partition, record.offset, content)

    def note_predicted(self, letters: Iterable[Letter]) -> None:
        """Note that the queries of `letters` were asked again and predicted. Raises BrokerError."""
        at_us = time.time_ns() // 1000
        notes = {
            letter.place.encode(): encode_dead_letter(
                DeadLetter(self._topic, letter.partition, letter.offset, letter.content.stage, RETRIED, "", at_us)
            )
            for letter in letters
        }
        if notes:
            write(self._settings, self._topic, notes)

    def picked(self, places: Iterable[str]) -> list[Letter]:
        """The letters at these places, in their order. Raises UsageError for a place where none is."""
        wanted = dict.fromkeys(places)
        found = {letter.place: letter for letter in self.read() if letter.place in wanted}
        missing = next((place for place in wanted if place not in found), None)
        if missing is not None:
            raise UsageError(f"{self._topic} has no letter {missing!r}: see `spillway dead list`")
        return [found[place] for place in wanted]

    def query(self, letter: Letter) -> Query:
        """What the record in the letter says, where it is a query that can be read. Raises WireError."""
        return self._query(letter.headers, letter.content.value)

    def retry(self, letter: Letter) -> Retry:
        """The query that a letter is about, under a new id. Raises UsageError where it cannot be asked again."""
        pairs, key, value = self._original(letter)
        try:
            query = self._query(pairs, value)
        except WireError as error:
            raise UsageError(
                f"letter {letter.place}: its query cannot be read ({error}), so it would fail again: send a new query"
            ) from error
        old = letter.request_id
        attempt = attempt_of(pairs) + 1
        extra = {
            name: (raw or b"").decode("utf-8", "replace")
            for name, raw in pairs
            if name.startswith(wire.PASSTHROUGH) and name not in {wire.REQUEST_ID, RETRY_OF, ATTEMPT}
        }
        first = _text(pairs, RETRY_OF) or old
        suffix = f".{attempt}-{secrets.token_hex(4)}"
        return Retry(
            first[: MAX_REQUEST_ID - len(suffix)] + suffix,
            query,
            None if key is None or key == old.encode() else key.decode("utf-8", "replace"),
            {**extra, RETRY_OF: first, ATTEMPT: str(attempt)},
        )

    # Inside ----------------------------------------------------------------------------------------------------

    def _query(self, pairs: _Pairs, value: bytes | None) -> Query:
        if any(name == wire.CONTENT_TYPE and wire.is_json(said or b"") for name, said in pairs):
            return self._decoder.json_query(value or b"")
        return self._decoder.query(value or b"")

    def _original(self, letter: Letter) -> tuple[_Pairs, bytes | None, bytes | None]:
        content = letter.content
        if not letter.request_id:
            raise UsageError(f"letter {letter.place}: its record has no request id, so it cannot be sent again")
        if content.topic == self._ingress and content.value is not None:
            return letter.headers, content.key, content.value
        found = self._find(letter)
        if found is None:
            raise UsageError(
                f"letter {letter.place}: its query {letter.request_id} is no longer on {self._ingress} (its retention "
                "has passed), and a record between stages cannot be sent again: send the query again from the client"
            )
        return list(found.headers), found.key, found.value

    def _find(self, letter: Letter) -> Record | None:
        """Look for a query on the ingress, from about when it was sent on; a query keeps its partition."""
        sent = _text(letter.headers, wire.SENT)
        since = (int(sent) if sent.isdigit() else 0) / 1e6 - _EARLIER
        with Reading(self._settings, [(self._ingress, letter.content.partition)], since=since) as reading:
            asked = (each for each in reading.to_the_end() if wire.identify(each.headers) == letter.request_id)
            return next(asked, None)


def retried(letters: Iterable[Letter], noted: Collection[str]) -> set[str]:
    """The places of those among `letters`, all that were read, which were asked again; `noted` are predicted since."""
    every, latest = list(letters), Counter[str]()
    for letter in every:
        latest[letter.first] = max(latest[letter.first], letter.attempt)
    return {*noted, *(letter.place for letter in every if letter.first and letter.attempt < latest[letter.first])}


def _place(partition: int, offset: int) -> str:
    return f"{partition}/{offset}"


def attempt_of(pairs: Iterable[tuple[str, bytes | None]]) -> int:
    said = _text(pairs, ATTEMPT)
    return int(said) if said.isdigit() else 1


def _text(pairs: Iterable[tuple[str, bytes | None]], name: str) -> str:
    raw = next((value for key, value in pairs if key == name), None) or b""
    return raw.decode("ascii", "replace")
