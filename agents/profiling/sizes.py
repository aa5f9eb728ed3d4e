"""Which batch sizes are measured: `1,2,4..64`, where a..b is every power of two from a to b and the middles between."""

from __future__ import annotations

import re
from typing import Final

from lineage.errors import UsageError

_PART: Final = re.compile(r"(\d{1,7})(?:\.\.(\d{1,7}))?")
_MOST: Final = 1_000_000


def parse_sizes(text: str) -> tuple[int, ...]:
    """The sizes that a text names, sorted. Raises UsageError that says how to write it."""
    sizes: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= _MOST:
            raise UsageError(f"{part.strip()!r} names no batch sizes; write them as in 1,2,4..64")
        sizes |= {first, last, *(size for size in _steps(last) if first < size)}
    return tuple(sorted(sizes))


def sizes_up_to(most: int, chosen: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """The sizes to measure of a stage whose batches hold at most `most`: 1, that, and what was chosen between."""
    between = _steps(most) if chosen is None else chosen
    return tuple(sorted({1, *(size for size in between if size <= most), most}))


def _steps(last: int) -> list[int]:
    steps, power = [], 1
    while power <= last:
        steps += [size for size in (power, power + power // 2) if size <= last]
        power *= 2
    return steps
