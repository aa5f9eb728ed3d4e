"""The spans of one query's trace, as OTLP has them in JSON, from the timings of its outcome. Pure.

    p (from sent to released; its parent is the caller's span)
    ├── detect (from its arrival there to its end)
    │   └── execute (of the batch)
    └── taste

Ids are hashes of the query and what the span is of, so that a trace that is sent twice is stored once.
https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from spillway.lineage.message import PREDICTION
from spillway.lineage.trace import is_own, new_trace

if TYPE_CHECKING:
    from spillway.lineage.headers import Headers
    from spillway.lineage.message import Outcome, StageTiming
    from spillway.lineage.trace import TraceContext

INTERNAL, SERVER = 1, 2  # SpanKind
ERROR: Final = 2  # StatusCode
_RATIO_DIGITS: Final = 14  # of a trace id, its last: those which are random by the W3C's rules
_MOST_TEXT: Final = 1_000  # characters
_MOST_NANOSECONDS: Final = (1 << 63) - 1


def is_sampled(outcome: Outcome, request_id: str, context: TraceContext, share: float) -> bool:
    """Return whether a trace is to be exported.

    That of a drop or a failure always is, that of a caller if the caller records it, and of the others a share.
    """
    if outcome.kind != PREDICTION or context.sampled:
        return True
    chosen = int(context.trace_id[-_RATIO_DIGITS:], 16) < share * 16**_RATIO_DIGITS
    return chosen and is_own(request_id, context)


def spans_of(outcome: Outcome, headers: Headers, released_us: int, pipeline: str) -> list[dict[str, Any]]:
    """Return the root span and those of the stages; of a stage that does not say when it began there is none.

    Times are by the clocks of who took them: the sender's, each stage's, and the gate's for `released_us`.
    """
    query = _Query(pipeline, headers)
    late_us = released_us - headers.deadline_us
    root = query.span("", pipeline, query.caller, headers.sent_us, released_us)
    root["kind"] = SERVER
    root["attributes"] = _attributes(
        request_id=headers.request_id,
        outcome=outcome.kind,
        ended_by=outcome.stage,
        slo_ms=(headers.deadline_us - headers.sent_us) / 1e3,
        lateness_ms=late_us / 1e3,  # negative: so long before the deadline
        late=late_us > 0,
    )
    spans = [root]
    for timing in outcome.timings:
        if timing.arrived:
            stages = _stage(query, timing, root["spanId"])
            _mark(stages[0], outcome, lost=outcome.kind != PREDICTION and timing.stage == outcome.stage)
            spans += stages
    _mark(root, outcome, lost=outcome.kind != PREDICTION)
    return spans


def _stage(query: _Query, timing: StageTiming, parent: str) -> list[dict[str, Any]]:
    began = timing.arrived + round((timing.queued + timing.waited) * 1e6)
    ended = began + round(timing.executed * 1e6)
    part = f"{timing.stage}\0{timing.arrived}"
    span = query.span(part, timing.stage, parent, timing.arrived, ended)
    span["attributes"] = _attributes(
        stage=timing.stage,
        queued_ms=timing.queued * 1e3,
        waited_ms=timing.waited * 1e3,
        executed_ms=timing.executed * 1e3,
        batch=timing.batch,
        model=timing.model,
        version=timing.version,
    )
    if not timing.batch:  # it was not run
        return [span]
    return [span, query.span(f"{part}\0execute", "execute", span["spanId"], began, ended)]


class _Query:
    """What the spans of one query share."""

    def __init__(self, pipeline: str, headers: Headers) -> None:
        context = headers.trace or new_trace(headers.request_id)
        self.caller = "" if is_own(headers.request_id, context) else context.span_id
        self._trace_id = context.trace_id
        self._identity = f"{pipeline}\0{headers.request_id}\0{headers.sent_us}"

    def span(self, part: str, name: str, parent: str, start_us: int, end_us: int) -> dict[str, Any]:
        identity = f"{self._identity}\0{part}".encode("utf-8", "surrogatepass")
        return {
            "traceId": self._trace_id,
            "spanId": blake2b(identity, digest_size=8).hexdigest(),
            "parentSpanId": parent,
            "name": name,
            "kind": INTERNAL,
            "startTimeUnixNano": _nanoseconds(start_us),
            "endTimeUnixNano": _nanoseconds(max(start_us, end_us)),  # clocks may be apart
        }


def _mark(span: dict[str, Any], outcome: Outcome, *, lost: bool) -> None:
    if lost:
        span["status"] = {"code": ERROR, "message": (outcome.text or outcome.reason)[:_MOST_TEXT]}
        span["attributes"].append({"key": "error.type", "value": _value(outcome.reason)})


def _nanoseconds(microseconds: int) -> str:
    """Return a time as OTLP has it; one that does not fit, as any client may have sent it, would cost its batch."""
    return str(min(max(0, microseconds * 1000), _MOST_NANOSECONDS))


def _attributes(**values: str | bool | float) -> list[dict[str, Any]]:
    return [{"key": f"spillway.{name}", "value": _value(value)} for name, value in values.items() if value != ""]


def _value(value: str | bool | float) -> dict[str, Any]:  # noqa: FBT001 - an attribute's
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}
