"""Durations and sizes as people write them: `0.4`, `400ms`, `2s`, `500us`; `8MiB`."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any, Final

_DURATION: Final = re.compile(r"(-?\d{1,18}(?:\.\d{1,18})?) ?(us|ms|s|min|h)")
_UNITS: Final = {
    "us": Decimal("0.000001"),
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "min": Decimal(60),
    "h": Decimal(3600),
}
_LONGEST: Final = 1e12  # seconds; a deadline is in microseconds of 64 bits
_SIZE: Final = re.compile(r"(-?\d{1,12}) ?(B|KiB|MiB|GiB|kB|MB|GB)")
_BYTES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 1_000, "MB": 1_000_000, "GB": 10**9}
_MILLI: Final = 1e-3
_HOUR: Final = 3_600


def duration(value: Any) -> float:
    """Seconds, from a number of seconds or from text with a unit. Raises ValueError that says what would do."""
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        value = float(Decimal(match[1]) * _UNITS[match[2]])
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"must be a duration, such as 0.4, '400ms', '2s' or '500us', not {shown(value)}")  # noqa: TRY004
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise ValueError(f"must be a finite duration, not {shown(value)}")
    if seconds > _LONGEST:
        raise ValueError(f"must be at most {_LONGEST:g} s, not {seconds:g} s")
    return seconds


def size(value: Any) -> int:
    """Bytes, from a whole number or from text with a unit. Raises ValueError that says what would do."""
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        return int(match[1]) * _BYTES[match[2]]
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a number of bytes, such as 8388608 or '8MiB', not {shown(value)}")  # noqa: TRY004
    return value


def show_duration(seconds: float) -> str:
    if seconds >= _HOUR and seconds % _HOUR == 0:
        return f"{seconds / _HOUR:g} h"
    if seconds == 0 or seconds >= 1:
        return f"{seconds:g} s"
    if seconds >= _MILLI:
        return f"{seconds * 1e3:g} ms"
    return f"{seconds * 1e6:g} us"


def shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return f"{value!r:.60}"
