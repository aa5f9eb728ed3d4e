"""The note beside a committed offset: which records below it must be read again to know what was known there.

A short text, as Kafka's commit metadata is (the broker refuses more than 4 KB): `r1:` and the spans of offsets, then,
for the gate, `;e` and the position in its egress partition. `r1:12-40,97` says: offsets 12 to 39, and 97 up to the
committed offset. Few spans: close ones are merged, as reading on is cheaper than another seek.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillway.lineage.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spillway.checkpoint.dedup import Span

_NEAR = 500  # offsets between two spans that are read rather than skipped
_MOST = 16  # spans in a note
_NOTE = re.compile(r"r1:((?:\d+-\d+,)*(?:\d+-\d+|\d+)?)(?:;e(\d+))?", re.ASCII)


@dataclass(slots=True, frozen=True)
class Note:
    """What to read before going on from a committed offset."""

    spans: tuple[Span, ...] = ()  # of the input, in order, apart, all below the committed offset
    egress: int | None = None  # where in the gate's egress partition to start; None: not a gate's note

    def encode(self, committed: int) -> str:
        spans = ",".join([f"{start}" if end == committed else f"{start}-{end}" for start, end in self.spans])
        return f"r1:{spans}" + ("" if self.egress is None else f";e{self.egress}")


def decode(note: str, committed: int) -> Note:
    """Read the note that stands beside `committed`; an empty one, as other tools leave it, asks for nothing.

    Raises CheckpointError where it cannot be understood: going on without that memory could repeat what was done.
    """
    if not note:
        return Note()
    match = _NOTE.fullmatch(note)
    if match is None:
        raise CheckpointError(
            f"the note {note[:80]!r} beside committed offset {committed} was written by another version of Spillway; "
            "go on with that version, or reset the consumer group's offsets"
        )
    spans = []
    for text in filter(None, match[1].split(",")):
        start, _, end = text.partition("-")
        spans.append((int(start), int(end) if end else committed))
    return Note(merge(spans, committed), int(match[2]) if match[2] else None)


def merge(spans: Iterable[Span], committed: int) -> tuple[Span, ...]:
    """Bring spans into order, cut them at `committed`, and join those that lie close, down to a fixed number."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if start >= committed:
            break
        end = min(end, committed)  # noqa: PLW2901 (the rest of the span lies ahead and is read anyway)
        if merged and start - merged[-1][1] <= _NEAR:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif start < end:
            merged.append((start, end))
    if len(merged) > _MOST:
        merged[_MOST - 1 :] = [(merged[_MOST - 1][0], merged[-1][1])]
    return tuple(merged)
