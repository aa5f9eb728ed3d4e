"""Sends traces to a collector by OTLP over HTTP, in a thread of its own, and never has the gate wait for it.

What the gate offers is kept until the next turn of the thread, 2 s later at most, and sent in a few requests. What
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
from http.client import HTTPException
from typing import TYPE_CHECKING, Final
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from spillway.agents.live.gate.trace_spans import is_sampled, spans_of
from spillway.lineage.headers import Headers
from spillway.lineage.trace import new_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.agents.core.outcomes import Release
    from spillway.lineage.message import Outcome

log = logging.getLogger(__name__)

# Why traces are lost. Each is counted by one thread alone: the first two by the gate's.
FULL: Final = "full"  # more came than are sent in a period
PAUSED: Final = "paused"  # the collector is left alone, as it did not take those before
REFUSED: Final = "refused"  # the collector did not take them
UNREADABLE: Final = "unreadable"  # what a stage says of its times makes no sense

MOST_WAITING: Final = 2_000  # traces, and thus at most so many in a period
_AT_ONCE: Final = 200  # traces in a request
_PERIOD: Final = 2.0  # seconds; a request costs the gate as much as fifteen traces
_LONGEST_PAUSE: Final = 30.0
_TIMEOUT: Final = 5.0  # for each step of a request
_CLOSE_SECONDS: Final = 2.0
_MOST_BYTES: Final = 1 << 16  # of an answer that are read


class TraceExporter:
    """`offer` is for the gate's thread; `sent` and `lost`, by reason, are traces. `url` is the collector's base."""

    def __init__(self, url: str, pipeline: str, replica: int, share: float, period: float = _PERIOD) -> None:
        self.sent = 0
        self.lost: Counter[str] = Counter(dict.fromkeys((FULL, PAUSED, REFUSED, UNREADABLE), 0))
        self._url = f"{url}/v1/traces"
        self._head = _head(pipeline, replica)
        self._pipeline = pipeline
        self._share = share
        self._period = period
        self._waiting: deque[tuple[Outcome, Headers, int]] = deque()  # and when it was released, in unix microseconds
        self._away = False  # the collector took nothing, and is left alone
        https = HTTPSHandler(context=ssl.create_default_context())
        self._rejection = ""  # what the collector said of the spans that it rejected
        self._opener = build_opener(ProxyHandler({}), https, _NoRedirects)
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
        pause, closing = self._period, False
        while not closing:
            closing = self._closing.wait(pause)
            was_away, error = self._away, self._send()
            self._away = error is not None
            pause = min(2 * pause, _LONGEST_PAUSE) if self._away else self._period
            if error is not None and not was_away:
                log.warning("traces are lost until %s takes them: %s", self._url, error)
            elif error is None and was_away:
                log.info("traces are taken again")

    def _send(self) -> str | None:
        """Send what waits; return why the collector did not take it, None where it did.

        One that was left alone is asked with an empty request.
        """
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        first = self._away
        while waiting or first:
            batch, waiting, first = waiting[:_AT_ONCE], waiting[_AT_ONCE:], False
            made = [text for each in batch if (text := self._made(*each))]
            error = self._post(made)
            if error is not None:
                self.lost[REFUSED] += len(made) + len(waiting)
                return error
            self.sent += len(made)
        return None

    def _made(self, outcome: Outcome, headers: Headers, released_us: int) -> str:
        time.sleep(0)  # the gate's thread gets its turn between two traces
        try:
            return json.dumps(spans_of(outcome, headers, released_us, self._pipeline), allow_nan=False)[1:-1]
        except (ValueError, OverflowError) as error:
            log.warning("no trace of %s: %s", headers.request_id, error, extra={"request_id": headers.request_id})
            self.lost[UNREADABLE] += 1
            return ""

    def _post(self, traces: Sequence[str]) -> str | None:
        """Send spans by a connection of their own; return why they were not taken, None where they were."""
        body = f"{self._head}{','.join(traces)}]}}]}}]}}".encode()
        try:
            request = Request(self._url, body, {"Content-Type": "application/json"})  # noqa: S310 - checked: it is HTTP
            with self._opener.open(request, timeout=_TIMEOUT) as answer:
                self._hear(answer.read(_MOST_BYTES))
        except (OSError, HTTPException, ValueError) as error:
            return str(error) or type(error).__name__
        return None

    def _hear(self, answer: bytes) -> None:
        """Warn, once for each reason, of spans that a collector rejected of a request that it took."""
        try:
            told = json.loads(answer)["partialSuccess"]
            rejected, why = (
                int(told.get("rejectedSpans", 0)),
                f"{told.get('errorMessage', 'no reason is given')!s:.200}",
            )
        except (ValueError, TypeError, LookupError, AttributeError):  # as most answers, which say nothing
            return
        if rejected > 0 and why != self._rejection:
            self._rejection = why
            log.warning("%s rejected %d spans of a request, and may reject more: %s", self._url, rejected, why)


class _NoRedirects(HTTPRedirectHandler):
    """Refuses a redirect, which would be followed by a GET without the traces."""

    def redirect_request(self, *_: object) -> None:
        return None


def _head(pipeline: str, replica: int) -> str:
    """Return a request's JSON up to its spans."""
    resource = {"service.name": pipeline, "service.namespace": "spillway", "service.instance.id": f"gate.{replica}"}
    attributes = json.dumps([{"key": key, "value": {"stringValue": value}} for key, value in resource.items()])
    scope = '"scopeSpans":[{"scope":{"name":"spillway"},"spans":['
    return f'{{"resourceSpans":[{{"resource":{{"attributes":{attributes}}},{scope}'
