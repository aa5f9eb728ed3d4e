"""A message that confluent-kafka has read as a record, whatever the keys of its headers are.

Kafka takes any bytes as a header's key. confluent-kafka (2.16) decodes them as UTF-8, and where that fails it returns a
broken list with an exception set. A call that looks at its result raises SystemError then; the calls of methods that
Python 3.11 specializes in code that has run some times do not look, and the exception comes up anywhere later.
"""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

from spillway.lineage import headers, trace
from spillway.lineage.ports import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

_headers = methodcaller("headers")  # a call from C, which is never specialized
_KEYS: Final = {
    key: key
    for key in (
        *(headers.REQUEST_ID, headers.SENT, headers.DEADLINE, headers.HOPS, headers.PATH, headers.LOST),
        *(headers.CONTENT_TYPE, headers.ACCEPT, headers.AFTER, headers.PRIORITY, headers.CLASS),
        *(trace.TRACEPARENT, trace.TRACESTATE, trace.BAGGAGE),
    )
}


def header_pairs(message: Any) -> list[tuple[str, Any]] | None:
    """The headers in their order; None where a key is not UTF-8: confluent-kafka does not tell any of them then.

    Our own keys are one object each: of a message that waits without its value they would be a third of what it takes.
    """
    try:
        return [(_KEYS.get(key, key), value) for key, value in _headers(message) or ()]
    except SystemError:
        return None


def record_of(message: Any, pairs: Sequence[tuple[Any, bytes | None]] | None = None, *, value: bool = True) -> Record:
    """Return a message as a record; without its value unless `value`.

    `pairs`: its headers where they were read already. Those that `header_pairs` cannot tell are left out.
    """
    kind, timestamp = message.timestamp()
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        timestamp,
        kind == TIMESTAMP_LOG_APPEND_TIME,
        message.key(),
        message.value() if value else None,
        tuple((header_pairs(message) or ()) if pairs is None else pairs),
    )
