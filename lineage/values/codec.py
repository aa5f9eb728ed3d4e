"""Messages to bytes and back: Avro single-object encoding (marker, schema fingerprint, body).

Encoders raise WireError(NOT_ENCODABLE or TOO_LARGE) and nothing else for what cannot travel. `Decoder` raises
WireError and nothing else, whatever the bytes, and never takes more memory than its limits allow.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, TypeVar

import fastavro

from spillway.lineage import reasons
from spillway.lineage.errors import WireError, unreadable
from spillway.lineage.limits import DEFAULT_LIMITS, MAX_QUANTILES, Limits, too_large
from spillway.lineage.message import PREDICTION, DeadLetter, Outcome, PlanWord, Query
from spillway.lineage.schemas import (
    DEAD_LETTER,
    FAST_READERS,
    HEADER_BYTES,
    MARKER,
    OUTCOME,
    OWN_FINGERPRINTS,
    QUERY,
    WORD,
    SchemaBook,
)
from spillway.lineage.values.decoding import OwnDecoder
from spillway.lineage.values.json_text import MIME, read_inputs, read_outcome
from spillway.lineage.values.resolution import resolve
from spillway.lineage.values.structures import check_length, pack_map

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.lineage.message import StageTiming

_Decoded = TypeVar("_Decoded")
_MAX_TEXT: Final = 4_096  # characters of an explanation
_HEADERS: Final = {name: MARKER + fingerprint for name, fingerprint in OWN_FINGERPRINTS.items()}
_QUERY_HEADER: Final = _HEADERS[QUERY]
_OUTCOME_HEADER: Final = _HEADERS[OUTCOME]


def decoded(decode: Callable[[bytes], _Decoded], value: bytes, relearn: Callable[[], bool]) -> _Decoded:
    """Decode a message; one of an unknown schema once more, where `relearn` says that more are known now."""
    try:
        return decode(value)
    except WireError as error:
        if error.reason != reasons.UNKNOWN_SCHEMA or not relearn():
            raise
    return decode(value)


def encode_query(query: Query, limits: Limits = DEFAULT_LIMITS) -> bytes:
    left = [limits.max_values]
    record = {
        "inputs": pack_map(query.inputs, limits, left),
        "parameters": pack_map(query.parameters, limits, left),
        "timings": _pack_timings(query.timings, limits),
        "flags": pack_map(query.flags, limits, left) if query.flags else query.flags,
    }
    return _write(QUERY, record, limits.max_message_bytes)


def encode_outcome(outcome: Outcome, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """An outcome as a message's value. One without outputs fits: what only explains it is left out if need be."""
    left = [limits.max_values]
    record = {
        "kind": outcome.kind,
        "outputs": pack_map(outcome.outputs, limits, left),
        "reason": outcome.reason,
        "text": _readable(outcome.text, limits),
        "stage": outcome.stage,
        "timings": _pack_timings(outcome.timings, limits),
        "flags": pack_map(outcome.flags, limits, left) if outcome.flags else outcome.flags,
    }
    _check_names(limits, outcome.reason, outcome.stage)
    try:
        return _write(OUTCOME, record, limits.max_message_bytes)
    except WireError as error:
        if error.reason != reasons.TOO_LARGE or outcome.kind == PREDICTION or outcome.outputs:
            raise
        return _write(OUTCOME, {**record, "text": "", "timings": [], "flags": {}}, limits.max_message_bytes)


def encode_dead_letter(letter: DeadLetter, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """A dead letter as a message's value, of `limits.max_letter_bytes` at most. A very long text is cut."""
    record = {name: getattr(letter, name) for name in DeadLetter.__slots__}
    record["text"] = _readable(letter.text, limits)
    record["headers"] = [{"key": key, "value": value} for key, value in letter.headers]
    return _write(DEAD_LETTER, record, limits.max_letter_bytes)


def encode_word(word: PlanWord, limits: Limits = DEFAULT_LIMITS) -> bytes:
    _check_names(limits, word.stage)
    record = {name: getattr(word, name) for name in PlanWord.__slots__}
    for told in record.values():
        if isinstance(told, tuple) and len(told) > MAX_QUANTILES:
            raise too_large(f"a summary of {len(told)} quantiles", MAX_QUANTILES)
    return _write(WORD, record, limits.max_message_bytes)


class Decoder:
    """Decodes message values within `limits`, written with our schemas or with those in `book`.

    Every method raises WireError only: NOT_AVRO where the single-object header is missing, UNKNOWN_SCHEMA for a
    fingerprint that the book lacks or a message of another type, TOO_LARGE over a limit, CORRUPT for the rest.
    Tensors are read-only views on the message. Safe for use from several threads.
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS, book: SchemaBook | None = None) -> None:
        self._limits = limits
        self._book = SchemaBook() if book is None else book
        self._own = OwnDecoder(limits)

    def json_query(self, message: bytes) -> Query:
        """The query whose inputs `message` holds as a JSON object (`values.json_text`), within the limits."""
        if len(message) > self._limits.max_message_bytes:
            raise too_large(f"a message of {len(message)} bytes", self._limits.max_message_bytes, "max_message_bytes")
        # By way of Avro it is held to the same limits, and comes out as the same types, as any other query.
        try:
            encoded = encode_query(Query(read_inputs(message, self._limits)), self._limits)
            return self._own.query(encoded, HEADER_BYTES)[0]
        except WireError:
            raise
        except Exception as error:
            raise unreadable(error) from error

    def query(self, message: bytes) -> Query:
        decoded = self.message(message)
        if not isinstance(decoded, Query):
            raise WireError(reasons.UNKNOWN_SCHEMA, "the message is an outcome, not a query")
        return decoded

    def outcome(self, message: bytes) -> Outcome:
        decoded = self.message(message)
        if not isinstance(decoded, Outcome):
            raise WireError(reasons.UNKNOWN_SCHEMA, "the message is a query, not an outcome")
        return decoded

    def released(self, message: bytes) -> Outcome:
        """The outcome in a message from the egress, which is in JSON where its query asked for that."""
        if message[:1] != b"{":
            return self.outcome(message)
        if len(message) > self._limits.max_message_bytes:
            raise too_large(f"a message of {len(message)} bytes", self._limits.max_message_bytes, "max_message_bytes")
        try:
            return read_outcome(message, self._limits)
        except WireError:
            raise
        except Exception as error:
            raise unreadable(error) from error

    def message(self, message: bytes) -> Query | Outcome:
        decoded = self._decode(message, self._limits.max_message_bytes)
        if not isinstance(decoded, (Query, Outcome)):
            what = "dead letter" if isinstance(decoded, DeadLetter) else "replica's word"
            raise WireError(reasons.UNKNOWN_SCHEMA, f"the message is a {what}, neither a query nor an outcome")
        return decoded

    def dead_letter(self, message: bytes) -> DeadLetter:
        decoded = self._decode(message, self._limits.max_letter_bytes)
        if not isinstance(decoded, DeadLetter):
            raise WireError(reasons.UNKNOWN_SCHEMA, "the message is not a dead letter")
        return decoded

    def word(self, message: bytes) -> PlanWord:
        decoded = self._decode(message, self._limits.max_message_bytes)
        if not isinstance(decoded, PlanWord):
            raise WireError(reasons.UNKNOWN_SCHEMA, "the message is not a replica's status")
        return decoded

    def _decode(self, message: bytes, most: int) -> Query | Outcome | DeadLetter | PlanWord:
        if type(message) is not bytes:
            raise WireError(reasons.NOT_AVRO, f"a message's value must be bytes, not {type(message).__name__}")
        if len(message) > most:
            raise too_large(f"a message of {len(message)} bytes", most)
        header = message[:HEADER_BYTES]
        decoded: Query | Outcome
        try:
            if header == _QUERY_HEADER:
                decoded, end = self._own.query(message, HEADER_BYTES)
            elif header == _OUTCOME_HEADER:
                decoded, end = self._own.outcome(message, HEADER_BYTES)
            else:
                return self._decode_foreign(header, message)
        except WireError:
            raise
        except (IndexError, struct.error) as error:
            raise WireError(reasons.CORRUPT, "the message ends early") from error
        except UnicodeDecodeError as error:
            raise WireError(reasons.CORRUPT, f"a text is not UTF-8: {error.reason}") from error
        except Exception as error:
            raise unreadable(error) from error
        if end != len(message):
            raise WireError(reasons.CORRUPT, f"{len(message) - end} bytes follow the message's end")
        return decoded

    def _decode_foreign(self, header: bytes, message: bytes) -> Query | Outcome | DeadLetter | PlanWord:
        if len(header) < HEADER_BYTES or not header.startswith(MARKER):
            hint = f"; a query in JSON needs the header content-type: {MIME}" if message[:1] == b"{" else ""
            raise WireError(reasons.NOT_AVRO, f"the value does not start as Avro single-object encoding does{hint}")
        fingerprint = header[len(MARKER) :]
        schema = self._book.writer(fingerprint)
        if schema is None:
            raise WireError(reasons.UNKNOWN_SCHEMA, f"no schema with the fingerprint {fingerprint.hex()} is known")
        return resolve(schema, message, HEADER_BYTES, self._limits)


class _Chunks(list[bytes]):
    """What fastavro writes to: it hands over a message in one piece, which is then copied once and not twice."""

    write = list.append


def _pack_timings(timings: list[StageTiming], limits: Limits) -> list[dict[str, Any]]:
    if len(timings) > limits.max_timings:
        raise too_large(f"{len(timings)} stage timings", limits.max_timings, "max_timings")
    packed = []
    for timing in timings:
        _check_names(limits, timing.stage, timing.model, timing.version)
        packed.append(
            {
                "stage": timing.stage,
                "queued": timing.queued,
                "waited": timing.waited,
                "executed": timing.executed,
                "batch": timing.batch,
                "model": timing.model,
                "version": timing.version,
                "arrived": timing.arrived,
            }
        )
    return packed


def _check_names(limits: Limits, *names: str) -> None:
    most = limits.max_name_bytes
    for name in names:
        if type(name) is not str:
            raise WireError(reasons.NOT_ENCODABLE, f"a name must be a string, not {name!r:.80}")
        if len(name) > most or not name.isascii():  # else it fits
            check_length("a name", name, most)


def _readable(text: str, limits: Limits) -> str:
    """An explanation that can be sent, whatever exception it comes from: cut, and with no half characters in it."""
    text = text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."
    return text.encode("utf-8", "replace")[: limits.max_string_bytes].decode(errors="ignore")


def _write(name: str, record: dict[str, Any], most: int) -> bytes:
    chunks = _Chunks((_HEADERS[name],))
    try:
        fastavro.schemaless_writer(chunks, FAST_READERS[name], record)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise WireError(reasons.NOT_ENCODABLE, f"not a {name}: {str(error)[:200]}") from error
    message = b"".join(chunks)
    if len(message) > most:
        raise too_large(f"a message of {len(message)} bytes", most)
    return message
