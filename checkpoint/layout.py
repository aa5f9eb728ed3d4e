"""Where a state's tensors lie in chunks: a function of their entries alone, so that writer and reader agree.

Invariants: every byte of every tensor lies in exactly one chunk; no chunk is longer than `chunk_bytes`; the same
entries give the same layout. A tensor of `own_bytes` or more has chunks of its own, so that its neighbours' changes,
and theirs its own, cost nothing; smaller ones share chunks, in order, each starting at a multiple of 8 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from spillway.checkpoint import arrays

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spillway.lineage.replication import Entry

CHUNK_BYTES: Final = 256 << 10
"""By default: 1 % of 100 MB in one place is five chunks, and 100 MB take 400 records and 9 KB of contents."""
OWN_BYTES: Final = 64 << 10
_ALIGNED: Final = 8


class Piece(NamedTuple):
    """Some bytes of a tensor, and where in its chunk they lie."""

    tensor: int  # which of the state's tensors
    start: int  # bytes from the tensor's first
    stop: int
    at: int  # in the chunk


class Span(NamedTuple):
    """What one chunk holds."""

    size: int
    pieces: tuple[Piece, ...]


def spans_of(entries: Iterable[Entry], chunk_bytes: int = CHUNK_BYTES, own_bytes: int = OWN_BYTES) -> tuple[Span, ...]:
    spans: list[Span] = []
    shared: list[Piece] = []
    used = 0
    sizes = (arrays.nbytes(entry) for entry in entries if entry.dtype)
    for tensor, size in enumerate(sizes):
        if size >= min(own_bytes, chunk_bytes):
            starts = range(0, size, chunk_bytes)
            ends = (min(start + chunk_bytes, size) for start in starts)
            pieces = (Piece(tensor, start, stop, 0) for start, stop in zip(starts, ends, strict=True))
            spans += [Span(piece.stop - piece.start, (piece,)) for piece in pieces]
            continue
        if used + size > chunk_bytes:
            spans.append(_shared(shared))
            shared, used = [], 0
        if size:
            shared.append(Piece(tensor, 0, size, used))
            used = -(-(used + size) // _ALIGNED) * _ALIGNED
    if shared:
        spans.append(_shared(shared))
    return tuple(spans)


def _shared(pieces: list[Piece]) -> Span:
    last = pieces[-1]
    return Span(last.at + last.stop, tuple(pieces))
