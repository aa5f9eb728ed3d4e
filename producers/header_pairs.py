"""The headers of a message that confluent-kafka has read, whatever its keys are.

Kafka takes any bytes as a header's key. confluent-kafka (2.16) decodes them as UTF-8, and where that fails it returns a
broken list with an exception set. A call that looks at its result raises SystemError then; the calls of methods that
Python 3.11 specializes in code that has run some times do not look, and the exception comes up anywhere later.
"""

from __future__ import annotations

from operator import methodcaller
from sys import intern
from typing import Any

_headers = methodcaller("headers")  # a call from C, which is never specialized


def header_pairs(message: Any) -> list[tuple[str, Any]] | None:
    """The headers in their order; None where a key is not UTF-8: confluent-kafka does not tell any of them then.

    Equal keys are one object: of a message that waits without its value they would be a third of what it takes.
    """
    try:
        return [(intern(key), value) for key, value in _headers(message) or ()]
    except SystemError:
        return None
