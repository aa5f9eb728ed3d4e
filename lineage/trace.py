"""W3C Trace Context (level 2) and Baggage: one trace per query.

Stages pass the caller's context on as it came: the gate exports all spans of a query, below the caller's.

https://www.w3.org/TR/trace-context-2/ and https://www.w3.org/TR/baggage/. As they ask: a `traceparent` that cannot be
read is replaced by a new trace and takes its `tracestate` with it; none of these headers is ever an error.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
BAGGAGE: Final = "baggage"

MAX_TRACESTATE_BYTES: Final = 2_048  # the least to carry is 512
MAX_TRACESTATE_MEMBERS: Final = 32
MAX_BAGGAGE_BYTES: Final = 8_192
_PARENT_LENGTH: Final = 55
_HEX: Final = b"0123456789abcdef"
_ZERO_TRACE: Final = "0" * 32
_ZERO_SPAN: Final = "0" * 16
_SAMPLED: Final = 0x01
_KNOWN_FLAGS: Final = 0x03  # sampled, random-trace-id


@dataclass(slots=True, frozen=True)
class TraceContext:
    """Where in which trace a message was sent: ids in lowercase hex, the vendors' state and the baggage verbatim."""

    trace_id: str
    span_id: str
    flags: int = 0
    state: bytes = b""
    baggage: bytes = b""

    @property
    def sampled(self) -> bool:
        """Whether the caller records this trace."""
        return bool(self.flags & _SAMPLED)

    def traceparent(self) -> bytes:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags & _KNOWN_FLAGS:02x}".encode()


def new_span_id() -> str:
    """A random span id, never the invalid all-zero one."""
    span = os.urandom(8).hex()
    return span if span != _ZERO_SPAN else new_span_id()


def new_trace(request_id: str, baggage: bytes = b"") -> TraceContext:
    """A trace for a query that came without one.

    Its id is a hash of the request id, so that every root stage, and a stage that reads the message again, gives the
    same; it is not sampled, as nobody asked for that.
    """
    return TraceContext(_own_trace_id(request_id), new_span_id(), 0, b"", baggage)


def is_own(request_id: str, context: TraceContext) -> bool:
    """Return whether a query came without a trace, so that `new_trace` made this one: nobody has its parent span."""
    return context.trace_id == _own_trace_id(request_id)


def _own_trace_id(request_id: str) -> str:
    trace_id = blake2b(request_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return trace_id if trace_id != _ZERO_TRACE else "1" * 32


def read(request_id: str, parent: bytes | None, state: bytes | None, baggage: bytes | None) -> TraceContext:
    """The context in the three headers, where None is an absent one; a new trace where they hold none."""
    luggage = baggage if baggage and len(baggage) <= MAX_BAGGAGE_BYTES else b""
    parsed = _parse(parent) if parent else None
    if parsed is None:
        return new_trace(request_id, luggage)
    trace_id, span_id, flags = parsed
    return TraceContext(trace_id, span_id, flags, _valid_state(state), luggage)


def _parse(parent: bytes) -> tuple[str, str, int] | None:
    """Trace id, parent id and flags of a `traceparent`; None where it is not valid.

    A later version may go on after a dash; version 00 has exactly the four fields, and version ff is forbidden.
    """
    fields = parent[:_PARENT_LENGTH]
    if len(fields) < _PARENT_LENGTH or fields[2:3] + fields[35:36] + fields[52:53] != b"---":
        return None
    digits = fields[:2] + fields[3:35] + fields[36:52] + fields[53:]
    if digits.translate(None, _HEX):
        return None
    version, rest = fields[:2], parent[_PARENT_LENGTH:]
    if version == b"ff" or (rest and (version == b"00" or not rest.startswith(b"-"))):
        return None
    trace_id, span_id = fields[3:35].decode(), fields[36:52].decode()
    if trace_id == _ZERO_TRACE or span_id == _ZERO_SPAN:
        return None
    return trace_id, span_id, int(fields[53:], 16) & _KNOWN_FLAGS


def _valid_state(state: bytes | None) -> bytes:
    """The vendors' list as it came, or nothing where it is too long or no text: it may be dropped, never mended."""
    if not state or len(state) > MAX_TRACESTATE_BYTES or state.count(b",") >= MAX_TRACESTATE_MEMBERS:
        return b""
    return state if state.isascii() and state.decode().replace("\t", " ").isprintable() else b""
