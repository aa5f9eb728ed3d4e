"""The schema log `<p>.schemas`: writers' Avro schemas by fingerprint, registered before their first message.

A record's key is the schema's fingerprint in hex, its value the schema as JSON text. The topic is compacted, so that a
schema stays for as long as the topic; it is read whole, which takes a few round trips, as there are only ever a few.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from spillway.lineage.errors import WireError
from spillway.lineage.schemas import OWN_SCHEMAS, SchemaBook
from spillway.producers.kafka.reading import Reading
from spillway.producers.table import write
from spillway.topology.topics import schemas as schemas_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.lineage.ports import Record
    from spillway.producers.connection import ClientSettings

log = logging.getLogger(__name__)

_RELEARN_SECONDS = 1.0


def known_schemas(settings: ClientSettings, pipeline: str) -> SchemaBook:
    """Return what a pipeline's schema log has now. Raises BrokerError, TopicError."""
    log = SchemaLog(settings, pipeline)
    log.relearn()
    return log.book


class SchemaLog:
    """One process's view of a pipeline's schema log; for one thread at a time.

    `book` holds every schema of the log that this version can read, and our own. A writer calls `open` before its
    first message; a reader that meets an unknown fingerprint calls `relearn`.
    """

    def __init__(self, settings: ClientSettings, pipeline: str, *, timeout: float = 30.0) -> None:
        self.book = SchemaBook()
        self._settings = settings
        self._topic = schemas_topic(pipeline)
        self._timeout = timeout
        self._registered: set[bytes] = set()
        self._relearnt_at = float("-inf")

    def open(self, own: Mapping[bytes, str] = OWN_SCHEMAS) -> SchemaBook:
        """Read the log, register what is missing of `own`, and return the book."""
        self._read()
        missing = {fingerprint: text for fingerprint, text in own.items() if fingerprint not in self._registered}
        if missing:
            rows: dict[bytes, bytes | None] = {each.hex().encode(): text.encode() for each, text in missing.items()}
            write(self._settings, self._topic, rows, self._timeout)
            self._registered |= missing.keys()
        return self.book

    def relearn(self) -> bool:
        """Read the log again; whether the book has grown. At most once a second: unknown bytes may be anybody's."""
        now = time.monotonic()
        if now - self._relearnt_at < _RELEARN_SECONDS:
            return False
        self._relearnt_at = now
        before = len(self.book)
        self._read()
        return len(self.book) > before

    def _read(self) -> None:
        with Reading(self._settings, [(self._topic, 0)], patience=self._timeout) as reading:
            for record in reading.to_the_end():
                self._learn(record)

    def _learn(self, record: Record) -> None:
        if not record.key or not record.value:
            return
        try:
            self._registered.add(bytes.fromhex(record.key.decode()))
            self.book.add(record.value.decode())
        except (WireError, ValueError) as error:
            # Another version's schema, or rubbish: its messages stay unknown, ours are none the worse for it.
            log.warning("%s: a schema at offset %s cannot be used: %s", self._topic, record.offset, error)
