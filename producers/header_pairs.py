"""The headers of a message that confluent-kafka has read, whatever its keys are.

Kafka takes any bytes as a header's key. confluent-kafka (2.16) decodes them as UTF-8, and where that fails it returns a
broken list with an exception set. A call that looks at its result raises SystemError then; the calls of methods that
Python 3.11 specializes in code that has run some times do not look, and the exception comes up anywhere later.
"""

from __future__ import annotations

from operator import methodcaller
from typing import Any, Final

from spillway.lineage import headers, trace

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
