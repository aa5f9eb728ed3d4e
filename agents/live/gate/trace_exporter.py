"""Sends traces to a collector by OTLP over HTTP, in a thread of its own, and never has the gate wait for it.

What the gate offers is kept until the next turn of the thread, a second later at most, and sent in a few requests. What
cannot be is lost, and counted: where more traces come than `MOST_WAITING`, and while the collector takes none. It is
then left alone for a time that doubles up to 30 s, in which no spans are made.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
import time
from collections import Counter, deque
from dataclasses import replace
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from spillway.agents.live.gate.trace_spans import is_sampled, spans_of
from spillway.lineage.headers import Headers
from spillway.lineage.trace import new_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.agents.core.outcomes import Release
    from spillway.lineage.message import Outcome

log = logging.getLogger(__name__)

# Why traces are lost. Each is counted by one thread alone: the first two by the gate's.
FULL: Final = "full"  # more came than are sent in a second
PAUSED: Final = "paused"  # the collector is left alone, as it did not take those before
REFUSED: Final = "refused"  # the collector did not take them
UNREADABLE: Final = "unreadable"  # what a stage says of its times makes no sense

MOST_WAITING: Final = 1_000  # traces, and thus at most so many in a second
_AT_ONCE: Final = 200  # traces in a request
_PERIOD: Final = 1.0  # seconds
_LONGEST_PAUSE: Final = 30.0
_TIMEOUT: Final = 5.0  # for each step of a request
_CLOSE_SECONDS: Final = 2.0
_PATH: Final = "/v1/traces"
_MOST_BYTES: Final = 1 << 16  # of an answer that are read

_Trace = tuple["Outcome", Headers, int]  # and when it was released, in unix microseconds


class TraceExporter:
    """`offer` is for the gate's thread; `sent` and `lost`, by reason, are traces."""

    def __init__(self, url: str, pipeline: str, replica: int, share: float, period: float = _PERIOD) -> None:
        self.sent = 0
        self.lost: Counter[str] = Counter(dict.fromkeys((FULL, PAUSED, REFUSED, UNREADABLE), 0))
        self._pipeline = pipeline
        self._share = share
        self._period = period
        self._waiting: deque[_Trace] = deque()
        self._away = False  # the collector took nothing, and is left alone
        self._post = Collector(url, pipeline, replica).post
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def offer(self, release: Release, now: float) -> None:
        """Take what a query's trace is made of, if it is sampled; `now`: when readers saw its outcome, unix seconds."""
        request_id, outcome, source = release.request_id, release.outcome, release.source
        context = source.payload.trace or new_trace(request_id)
        if not is_sampled(outcome, request_id, context, self._share):
            return
        if self._away or len(self._waiting) >= MOST_WAITING:
            self.lost[PAUSED if self._away else FULL] += 1
            return
        headers = Headers(request_id, round(source.sent * 1e6), round(source.deadline * 1e6), trace=context)
        # Without the outputs, which may be large.
        self._waiting.append((replace(outcome, outputs={}, flags={}), headers, int(now * 1e6)))

    def close(self) -> None:
        """Send what waits, for a moment."""
        self._closing.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        pause = self._period
        while True:
            closing = self._closing.wait(pause)
            error = self._send()
            if error is None:
                if self._away:
                    log.info("traces are taken again")
                self._away, pause = False, self._period
            else:
                if not self._away:
                    log.warning("traces are lost until the collector takes them: %s", error)
                self._away, pause = True, min(2 * pause, _LONGEST_PAUSE)
            if closing:
                return

    def _send(self) -> str | None:
        """Send what waits; return why the collector did not take it, None where it did.

        One that was left alone is asked with an empty request.
        """
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        while waiting or self._away:
            batch, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
            made = [text for each in batch if (text := self._made(each))]
            error = self._post(made) if made or self._away else None
            if error is not None:
                self.lost[REFUSED] += len(made) + len(waiting)
                return error
            self.sent += len(made)
            self._away = False
        return None

    def _made(self, trace: _Trace) -> str:
        outcome, headers, released_us = trace
        time.sleep(0)  # the gate's thread gets its turn between two traces
        try:
            return json.dumps(spans_of(outcome, headers, released_us, self._pipeline), allow_nan=False)[1:-1]
        except (ValueError, OverflowError, TypeError) as error:
            log.warning("no trace of %s: %s", headers.request_id, error, extra={"request_id": headers.request_id})
            self.lost[UNREADABLE] += 1
            return ""


class Collector:
    """Posts spans to a collector, each time by a new connection: there is one request a second, if any."""

    def __init__(self, url: str, pipeline: str, replica: int) -> None:
        split = urlsplit(url)
        if split.scheme == "https":
            tls = ssl.create_default_context()
            self._connection: Callable[[], HTTPConnection] = lambda: HTTPSConnection(
                split.netloc, timeout=_TIMEOUT, context=tls
            )
        else:
            self._connection = lambda: HTTPConnection(split.netloc, timeout=_TIMEOUT)
        self._path = split.path.rstrip("/") + _PATH
        self._url = url
        resource = {"service.name": pipeline, "service.namespace": "spillway", "service.instance.id": f"gate.{replica}"}
        attributes = [{"key": key, "value": {"stringValue": value}} for key, value in resource.items()]
        self._head = f'{{"resourceSpans":[{{"resource":{{"attributes":{json.dumps(attributes)}}},'
        self._head += '"scopeSpans":[{"scope":{"name":"spillway"},"spans":['

    def post(self, spans: Sequence[str]) -> str | None:
        """Send spans, as JSON; return why they were not taken, None where they were."""
        body = f"{self._head}{','.join(spans)}]}}]}}]}}".encode()
        connection = self._connection()
        try:
            connection.request("POST", self._path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read(_MOST_BYTES)
        except (OSError, HTTPException, ValueError) as error:
            return f"{self._url}: {error or type(error).__name__}"
        finally:
            connection.close()
        taken = HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES
        return None if taken else f"{self._url}{_PATH} answers {answer.status} {answer.reason}"
