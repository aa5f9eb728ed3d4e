"""Writing what a stage cannot take to `<pipeline>.dead`: the record as it was, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.lineage import headers
from spillway.lineage.errors import WireError
from spillway.lineage.message import DeadLetter
from spillway.lineage.values import codec

if TYPE_CHECKING:
    from spillway.lineage.limits import Limits
    from spillway.lineage.ports import Record

REASON = "spillway-reason"
TEXT = "spillway-text"
STAGE = "spillway-stage"

_TEXT_BYTES = 1000


def dead_letter(record: Record, stage: str, reason: str, text: str, limits: Limits, now: float) -> bytes:
    """Encode the letter; a record too large for one goes without its value, and the text says so.

    `now`: unix seconds.
    """
    letter = DeadLetter(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        stage=stage,
        reason=reason,
        text=text[:_TEXT_BYTES],
        at_us=int(now * 1e6),
        key=record.key,
        value=record.value,
        headers=[(_raw(name), value) for name, value in record.headers],
    )
    try:
        return codec.encode_dead_letter(letter, limits)
    except WireError as error:
        letter.text = f"{letter.text} (without key, value and headers: {error})"
        letter.key, letter.value, letter.headers = None, None, []
        return codec.encode_dead_letter(letter, limits)


def letter_headers(stage: str, reason: str, text: str, request_id: str) -> list[tuple[str, bytes]]:
    """Say in headers why the letter was written, for readers that do not decode Avro."""
    pairs = [(STAGE, stage.encode()), (REASON, reason.encode()), (TEXT, text[:_TEXT_BYTES].encode("utf-8", "replace"))]
    return [(headers.REQUEST_ID, request_id.encode()), *pairs] if request_id else pairs


def _raw(name: str | bytes) -> bytes:
    return name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
