"""The headers of every message: identity, times, the last hop, the choices made, what was lost, trace, passthrough.

A client's own message may leave out its times, and may say that its value is JSON; `x-accept: application/json` asks
for an outcome in JSON.

Foreign headers, whatever their keys, are left alone: only `x-*` travels on. Of our own headers given twice the last
counts, as with Kafka's `lastHeader`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spillway.lineage import hops, reasons, trace
from spillway.lineage.errors import WireError
from spillway.lineage.ids import MAX_REQUEST_ID, is_request_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spillway.lineage.hops import Hop
    from spillway.lineage.trace import TraceContext


# The choices made for a query, and what was lost on its way, as they stand in headers.
#
# Text, for people to read: `detect=plates,faces;triage=` says that `detect` chose two successors and `triage` none.
# Stage names are legal Kafka topic names, so no separator is ever part of one. Paths repeat, so both directions
# remember what they have seen lately; the caches are bounded and hold nothing that did not parse.

Path = dict[str, tuple[str, ...]]

MAX_PATH_BYTES: Final = 4_096
_CACHED: Final = 256
_MAX_CACHED_BYTES: Final = 256
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")

_paths: dict[bytes, Path] = {}
_path_texts: dict[tuple[tuple[str, tuple[str, ...]], ...], bytes] = {}
_losses: dict[bytes, tuple[str, ...]] = {}


def encode_path(path: Path) -> bytes:
    """The header `spillway-path`. Raises WireError(NOT_ENCODABLE) for a name that is none, or too many."""
    key = tuple(path.items())
    text = _path_texts.get(key)
    if text is None:
        for chooser, chosen in key:
            _check((chooser, *chosen), reasons.NOT_ENCODABLE)
        text = _bounded(";".join(f"{chooser}={','.join(chosen)}" for chooser, chosen in key).encode())
        _remember(_path_texts, key, text, len(text))
    return text


def decode_path(raw: bytes) -> Path:
    """The choices in the header `spillway-path`, in a dict of the caller's own. Raises WireError(BAD_HEADERS)."""
    path = _paths.get(raw)
    if path is None:
        path = {}
        for choice in _text(raw).split(";"):
            chooser, equals, names = choice.partition("=")
            chosen = tuple(names.split(",")) if names else ()
            if not equals or chooser in path or len(set(chosen)) != len(chosen):
                raise _bad(raw)
            _check((chooser, *chosen), reasons.BAD_HEADERS)
            path[chooser] = chosen
        _remember(_paths, raw, path, len(raw))
    return dict(path)


def encode_lost(lost: tuple[str, ...]) -> bytes:
    """The header `spillway-lost`. Raises WireError(NOT_ENCODABLE) for a name that is none, or too many."""
    _check(lost, reasons.NOT_ENCODABLE)
    return _bounded(",".join(lost).encode())


def decode_lost(raw: bytes) -> tuple[str, ...]:
    """The names in the header `spillway-lost`. Raises WireError(BAD_HEADERS)."""
    lost = _losses.get(raw)
    if lost is None:
        lost = tuple(_text(raw).split(","))
        _check(lost, reasons.BAD_HEADERS)
        _remember(_losses, raw, lost, len(raw))
    return lost


def _text(raw: bytes) -> str:
    if len(raw) > MAX_PATH_BYTES or not raw.isascii():
        raise _bad(raw)
    return raw.decode()


def _bounded(raw: bytes) -> bytes:
    if len(raw) > MAX_PATH_BYTES:
        raise WireError(reasons.NOT_ENCODABLE, f"the names have {len(raw)} bytes, over the limit of {MAX_PATH_BYTES}")
    return raw


def _check(names: tuple[str, ...], reason: str) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            raise WireError(reason, f"{name!r:.80} is not a stage's name")


def _remember(cache: dict[Any, Any], key: object, value: object, size: int) -> None:
    if size > _MAX_CACHED_BYTES:
        return
    if len(cache) >= _CACHED:
        cache.clear()  # a hostile writer's paths must not keep ours out for good
    cache[key] = value


def _bad(raw: bytes) -> WireError:
    return WireError(reasons.BAD_HEADERS, f"these are not stages' names: {raw[:80]!r}")


REQUEST_ID: Final = "x-request-id"
SENT: Final = "spillway-sent"
DEADLINE: Final = "spillway-deadline"
HOPS: Final = "spillway-hops"
PATH: Final = "spillway-path"
LOST: Final = "spillway-lost"
CONTENT_TYPE: Final = "content-type"  # of a client's message whose value is JSON, and of an outcome in JSON
PASSTHROUGH: Final = "x-"
ACCEPT: Final = "x-accept"  # how the outcome is to be encoded: application/json, or Avro
AFTER: Final = "x-after"  # the version of a learner's state that the query's answer must have (`lineage.tokens`)
PRIORITY: Final = "x-priority"  # `offline`: the query is run when no other waits (`is_offline`)
CLASS: Final = "x-class"  # what a sender calls requests of this sort: paths are foretold by it
TRUTHS: Final = "spillway-truths"  # of a message of many truths for a learner: their ids, in order, between spaces
MOST_TRUTHS: Final = 256  # of one message; so their ids leave room for the other headers

OFFLINE: Final = b"offline"
MAX_EXTRA: Final = 32
MAX_EXTRA_BYTES: Final = 8_192  # keys and values of the passthrough together
_JSON: Final = b"application/json"
_MAX_MICROSECONDS: Final = (1 << 63) - 1
_MAX_DIGITS: Final = 19

_OWN: Final = frozenset(
    {REQUEST_ID, SENT, DEADLINE, HOPS, PATH, LOST, CONTENT_TYPE, trace.TRACEPARENT, trace.TRACESTATE, trace.BAGGAGE}
)

Pair = tuple[str, bytes]


@dataclass(slots=True)
class Headers:
    """What the headers of one message say. Times in unix microseconds, as the sender has put them."""

    request_id: str
    sent_us: int
    deadline_us: int
    hop: Hop | None = None  # the emitter; None where a client sent the message
    path: Path = field(default_factory=dict)  # chooser -> the successors it chose
    lost: tuple[str, ...] = ()  # for a tombstone: the predecessors, or terminals, that will not deliver
    trace: TraceContext | None = None  # `decode` always gives one
    extra: list[Pair] = field(default_factory=list)  # x-*, in order
    content_type: bytes = b""  # as a client says of its value; not passed on


def encode(headers: Headers) -> list[Pair]:
    """The headers as Kafka takes them. Raises WireError(NOT_ENCODABLE) for what `decode` would not take back."""
    if not is_request_id(headers.request_id):
        raise _not_encodable(
            f"a request id must have 1 to {MAX_REQUEST_ID} visible ASCII characters: {headers.request_id!r:.200}"
        )
    if not (0 <= headers.sent_us <= _MAX_MICROSECONDS and 0 <= headers.deadline_us <= _MAX_MICROSECONDS):
        raise _not_encodable(f"sent {headers.sent_us} and deadline {headers.deadline_us} must be unix microseconds")
    pairs = [
        (REQUEST_ID, headers.request_id.encode()),
        (SENT, b"%d" % headers.sent_us),
        (DEADLINE, b"%d" % headers.deadline_us),
    ]
    if headers.hop is not None:
        pairs.append((HOPS, hops.encode((headers.hop,))))
    if headers.path:
        pairs.append((PATH, encode_path(headers.path)))
    if headers.lost:
        pairs.append((LOST, encode_lost(headers.lost)))
    context = headers.trace
    if context is not None:
        pairs.append((trace.TRACEPARENT, context.traceparent()))
        if context.state:
            pairs.append((trace.TRACESTATE, context.state))
        if context.baggage:
            pairs.append((trace.BAGGAGE, context.baggage))
    if headers.extra:
        pairs.extend(_checked_extra(headers.extra))
    return pairs


def decode(
    pairs: Iterable[tuple[str | bytes, bytes | None]] | None, *, appended_us: int | None = None, slo_us: int = 0
) -> Headers:
    """The headers of a message from Kafka.

    A client's message may leave out when it was sent and until when it waits: with `appended_us`, when the broker
    appended it, it counts as sent then, and as due `slo_us` after that. Without, both are required.

    Raises WireError(BAD_HEADERS), whose `request_id` holds the id where one could be had: a header of ours is missing
    or absurd, or the passthrough is over its bounds.
    """
    own: dict[str, bytes] = {}
    extra: list[Pair] = []
    for raw_key, value in pairs or ():
        key = raw_key if type(raw_key) is str else _text_key(raw_key)
        if key in _OWN:
            if value is not None:
                own[key] = _combined(key, own[key], value) if key in own else value
        elif key.startswith(PASSTHROUGH) and _is_sendable(key):
            extra.append((key, b"" if value is None else value))
    request_id = _request_id(own.get(REQUEST_ID))
    try:
        sent = _microseconds(SENT, own, appended_us)
        deadline = _microseconds(DEADLINE, own, None if appended_us is None else sent + slo_us)
        raw_hops, raw_path, raw_lost = own.get(HOPS), own.get(PATH), own.get(LOST)
        chain = hops.decode(raw_hops) if raw_hops is not None else ()
        path = decode_path(raw_path) if raw_path else {}
        lost = decode_lost(raw_lost) if raw_lost else ()
        if extra:
            _check_bounds(extra)
    except WireError as error:
        error.request_id = request_id
        raise
    context = trace.read(request_id, own.get(trace.TRACEPARENT), own.get(trace.TRACESTATE), own.get(trace.BAGGAGE))
    hop = chain[-1] if chain else None
    return Headers(request_id, sent, deadline, hop, path, lost, context, extra, own.get(CONTENT_TYPE, b""))


def identify(pairs: Iterable[tuple[str | bytes, bytes | None]] | None) -> str:
    """The request id in the headers, whatever else they say; empty where none can be had."""
    raw = None
    for key, value in pairs or ():
        if value is not None and (key if type(key) is str else _text_key(key)) == REQUEST_ID:
            raw = value
    try:
        return _request_id(raw)
    except WireError:
        return ""


def truths(pairs: Iterable[tuple[str | bytes, bytes | None]] | None) -> tuple[str, ...] | None:
    """Return the ids of the truths of a message of many; None of any other message, none where they are no ids."""
    raw = next((value for key, value in pairs or () if key == TRUTHS and value is not None), None)
    if raw is None:
        return None
    ids = tuple(raw.decode("latin-1").split(" "))
    return ids if len(ids) <= MOST_TRUTHS and all(map(is_request_id, ids)) else ()


def about(pairs: Iterable[tuple[str | bytes, bytes | None]] | None) -> dict[str, str]:
    """What a log line about a message says of its query, for `extra=`; nothing where no id can be had."""
    listed = list(pairs or ())
    request_id = identify(listed)
    if not request_id:
        return {}
    parent = next((value for key, value in listed if _text_key(key) == trace.TRACEPARENT), None)
    return {"request_id": request_id, "trace_id": trace.read(request_id, parent, None, None).trace_id}


def is_json(media: bytes) -> bool:
    """Whether a header names JSON among its media types, which may have parameters and be written in any case."""
    return media == _JSON or (
        b"/" in media and any(each.partition(b";")[0].strip().lower() == _JSON for each in media.split(b","))
    )


def json_asked(pairs: Iterable[tuple[str | bytes, bytes | None]] | None) -> list[Pair]:
    """Return the header by which a client asks for its outcome in JSON, whatever the others say; empty for Avro."""
    for key, value in pairs or ():
        if key == ACCEPT and value and is_json(value):
            return [(ACCEPT, _JSON)]
    return []


def is_offline(headers: Headers) -> bool:
    """Whether a query is of low priority."""
    return (PRIORITY, OFFLINE) in headers.extra


def _text_key(key: str | bytes) -> str:
    if isinstance(key, str):
        return key
    try:
        return bytes(key).decode()
    except UnicodeDecodeError:
        return ""


def _is_sendable(key: str) -> bool:
    """Whether a key can be written again: one with the marks of a failed decoding in it cannot."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _combined(key: str, before: bytes, value: bytes) -> bytes:
    if key in {trace.TRACESTATE, trace.BAGGAGE}:
        # Lists, to be joined in order; one that is too long already will not be taken.
        return before + b"," + value if len(before) <= trace.MAX_BAGGAGE_BYTES else before
    if key == trace.TRACEPARENT:
        return b""  # two parents are none
    return value


def _request_id(raw: bytes | None) -> str:
    if raw is None:
        raise WireError(reasons.BAD_HEADERS, f"the header {REQUEST_ID} is missing")
    try:
        request_id = raw.decode("ascii") if len(raw) <= MAX_REQUEST_ID else ""
    except UnicodeDecodeError:
        request_id = ""
    if not is_request_id(request_id):
        raise WireError(
            reasons.BAD_HEADERS,
            f"the header {REQUEST_ID} must have 1 to {MAX_REQUEST_ID} visible ASCII characters: {raw[:64]!r}",
        )
    return request_id


def _microseconds(key: str, own: dict[str, bytes], default: int | None) -> int:
    raw = own.get(key)
    if raw is None:
        if default is not None:
            return default
        raise WireError(reasons.BAD_HEADERS, f"the header {key} is missing")
    if raw.isdigit() and len(raw) <= _MAX_DIGITS:
        value = int(raw)
        if value <= _MAX_MICROSECONDS:
            return value
    raise WireError(reasons.BAD_HEADERS, f"the header {key} must be unix microseconds in decimal: {raw[:32]!r}")


def _check_bounds(extra: list[Pair]) -> None:
    if len(extra) > MAX_EXTRA:
        raise WireError(reasons.BAD_HEADERS, f"{len(extra)} {PASSTHROUGH}* headers are over the limit of {MAX_EXTRA}")
    size = sum(len(key.encode()) + len(value) for key, value in extra)
    if size > MAX_EXTRA_BYTES:
        raise WireError(
            reasons.BAD_HEADERS, f"{size} bytes of {PASSTHROUGH}* headers are over the limit of {MAX_EXTRA_BYTES}"
        )


def _checked_extra(extra: list[Pair]) -> list[Pair]:
    for key, value in extra:
        if key in _OWN or not key.startswith(PASSTHROUGH) or not _is_sendable(key) or not isinstance(value, bytes):
            raise _not_encodable(f"{key!r:.80}={value!r:.80} is not a {PASSTHROUGH}* header that can be passed on")
    try:
        _check_bounds(extra)
    except WireError as error:
        raise _not_encodable(str(error)) from error
    return extra


def _not_encodable(text: str) -> WireError:
    return WireError(reasons.NOT_ENCODABLE, text)
