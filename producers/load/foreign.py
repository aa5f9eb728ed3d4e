"""Traffic as others write it, made a trace: counts per second, minute or any time, and dates or times of requests.

A column is known by its name in the file's first line, or by its number from 1. Dates are in UTC unless they say. When
within its second or minute a counted request came is drawn at random.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from spillway.lineage.errors import UsageError
from spillway.producers.load import schedule, traces

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Times = NDArray[np.float64]

_OWN = (["second", "requests"], ["t"])  # how the two forms of a trace begin
_TIMES, _COUNTS = ("timestamp", "time", "t", "date"), ("requests", "count", "counts", "invocations")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a file has what: its column, and for counts how many seconds a row is and the column that dates it."""

    column: str | None = None  # of times or counts; None: one with a usual name, else the first, of counts the last
    width: float | None = None  # None: a row is a request
    began: str | None = None  # None: rows follow one another without a gap


@dataclass(frozen=True, slots=True)
class Rescaling:
    """How traffic is to be made: `speed` times as fast, then so many requests a second on average or at most."""

    speed: float = 1.0
    rate: float | None = None
    peak: float | None = None  # of counted traffic's rows

    def scale(self, count: float, seconds: float, peak: float | None = None) -> float:
        """So many times the requests are wanted of `count` in `seconds`. Raises UsageError where that is unknown."""
        if self.peak is not None:
            if peak is None:
                raise UsageError("--peak needs counted requests: give --counts, or use --rate instead")
            return self.peak / (peak * self.speed)
        if self.rate is None:
            return 1.0
        if not seconds:
            raise UsageError("--rate needs requests at two or more times; here all come at the same time")
        return self.rate * seconds / (count * self.speed)


def read(file: Path, layout: Layout, wanted: Rescaling, rng: np.random.Generator) -> Times:
    """Arrivals of a file in seconds from its first, or from where a trace of ours begins; sorted.

    Raises UsageError naming file and line.
    """
    try:
        with traces.opened(file) as text:
            rows = [(number, row) for number, row in enumerate(csv.reader(text), start=1) if row]
    except FileNotFoundError as error:
        raise UsageError(f"there is no {file}") from error
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"cannot read {file}: {error}") from error
    header = [cell.strip().lower() for cell in rows[0][1]] if rows else []
    if layout == Layout() and (header[:2] in _OWN or header[:1] in _OWN):
        trace = traces.read_trace(file)
        if isinstance(trace, traces.Counts):
            return _spread(trace.seconds, trace.requests.astype(np.float64), 1.0, wanted, rng)
        times = trace
    elif layout.width is not None:
        return _spread(*_counted(file, rows, layout, layout.width), layout.width, wanted, rng)
    else:
        times = np.sort(_values(file, rows, layout.column, _TIMES, _moment))
        times -= times[0]
    scale = wanted.scale(len(times), float(times[-1]))
    return schedule.paced(schedule.scaled(times, scale, rng), speed=wanted.speed)


def _counted(file: Path, rows: list[tuple[int, list[str]]], layout: Layout, width: float) -> tuple[Times, Times]:
    """Which stretch of `width` each row is, and its count."""
    counts = _values(file, rows, layout.column, _COUNTS, _count)
    if not counts.sum():
        raise UsageError(f"{file}: has no requests in this column; name another with --column")
    if layout.began is None:
        return np.arange(len(counts), dtype=np.float64), counts
    began = _values(file, rows, layout.began, (), _moment)
    if len(began) != len(counts):
        raise UsageError(f"{file}:{rows[0][0]}: is a header in one column but not in the other; fix or remove it")
    bins = np.floor((began - began[0]) / width + 1e-6)
    near = np.flatnonzero(np.diff(bins) <= 0)
    if len(near):
        line = rows[len(rows) - len(bins) + int(near[0]) + 1][0]
        raise UsageError(f"{file}:{line}: begins less than {width:g} s after the row before; sort the rows")
    return bins, counts


def _spread(bins: Times, counts: Times, width: float, wanted: Rescaling, rng: np.random.Generator) -> Times:
    scale = wanted.scale(float(counts.sum()), float(bins[-1] + 1) * width, float(counts.max()) / width)
    return schedule.paced(schedule.from_counts(bins, counts, rng, scale) * width, speed=wanted.speed)


def _values(
    file: Path,
    rows: list[tuple[int, list[str]]],
    column: str | None,
    usual: tuple[str, ...],
    read: Callable[[str], float],
) -> Times:
    """A column's values. The first line is a header if its cell there is none of them."""
    if not rows:
        raise UsageError(f"{file}: is empty")
    header = [cell.strip().lower() for cell in rows[0][1]]
    if column is not None and column.lower() in header:
        place = header.index(column.lower())
    elif column is not None:
        place = int(column) - 1 if column.isdecimal() else -1
        if not 0 <= place < len(header):
            raise UsageError(
                f"{file}:1: has no column {column!r}; there are {', '.join(header)}, or 1 to {len(header)}"
            )
    else:
        named = [header.index(name) for name in usual if name in header]
        place = named[0] if named else len(header) - 1 if usual is _COUNTS else 0
    found: list[float] = []
    for number, row in rows:
        cell = row[place].strip() if place < len(row) else ""
        try:
            found.append(read(cell))
        except ValueError as error:
            if number == rows[0][0]:
                continue  # the header
            message = (
                f"{file}:{number}: column {place + 1} is {cell!r:.40}: {error}; if this is the wrong column, name "
                "another"
            )
            raise UsageError(message) from error
    if not found:
        raise UsageError(f"{file}: has a header but no rows")
    return np.array(found)


def _count(text: str) -> float:
    number = _number(text)
    if not 0 <= number < math.inf:
        raise ValueError("a count is a number of 0 or more")
    return number


def _moment(text: str) -> float:
    number = _number(text)
    if math.isfinite(number):
        return number
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("a time is a number of seconds, or a date as in 2023-11-16 18:15:46.68") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
