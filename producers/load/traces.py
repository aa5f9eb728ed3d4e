"""Traces: CSV files of arrivals, as counts per second (`second,requests`) or as one time per request (`t,...`).

Either form may be gzipped (`.csv.gz`). Times count in seconds from the start of the trace. A load may also be named by
its process instead of a file: `constant:RATE`, `poisson:RATE` or `gamma:RATE,CV`.
"""

from __future__ import annotations

import csv
import gzip
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from spillway.lineage.errors import UsageError
from spillway.producers.load import schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

_PROCESSES = ("constant", "poisson", "gamma")
_LONGEST = 1e8  # seconds, three years: a time beyond that is a date, not a time since the trace's start


@dataclass(frozen=True, slots=True)
class Counts:
    """How many requests fell into each second."""

    seconds: NDArray[np.float64]
    requests: NDArray[np.int64]


def arrivals(
    source: str | Path, *, seed: int = 0, scale: float = 1.0, speed: float = 1.0, duration: float | None = None
) -> NDArray[np.float64]:
    """Due times, sorted, of a load named by a trace file or by a process; the same arguments give the same times.

    `scale` makes more or fewer requests, `speed` compresses time, `duration` cuts (in seconds after `speed`). Raises
    `UsageError` naming file and line.
    """
    rng = np.random.default_rng(seed)
    if isinstance(source, str) and source.startswith(tuple(f"{process}:" for process in _PROCESSES)):
        return _process(source, rng, scale, speed, duration)
    trace = read_trace(Path(source))
    if isinstance(trace, Counts):
        times = schedule.from_counts(trace.seconds, trace.requests, rng, scale)
    else:
        times = schedule.scaled(trace, scale, rng)
    due = schedule.paced(times, speed=speed, duration=duration)
    if not len(due):
        raise UsageError(f"{source}: no request is left at scale {scale}, speed {speed}, duration {duration}")
    return due


def read_trace(file: Path) -> Counts | NDArray[np.float64]:
    """What the file holds: counts, or when each request came, sorted. Raises `UsageError` naming file and line."""
    try:
        with opened(file) as text:
            rows = csv.reader(text)
            header = [cell.strip().lower() for cell in next(rows, [])]
            if header[:2] == ["second", "requests"]:
                return _counts(file, rows)
            if header[:1] == ["t"]:
                times = [_number(file, line, "t", row[0], float) for line, row in enumerate(rows, start=2) if row]
                if not times:
                    raise UsageError(f"{file}: no arrivals")
                return np.sort(np.array(times))
    except FileNotFoundError as error:
        raise UsageError(f"there is no trace or recording {file}") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file} is no text: a trace is CSV, in gzip if its name ends in .gz; a recording is named by its folder"
        ) from error
    except (OSError, EOFError, csv.Error) as error:
        raise UsageError(f"cannot read trace {file}: {error}") from error
    found = ",".join(header) or "nothing"
    raise UsageError(f"{file}:1: a trace starts with 'second,requests' or 't,...', this one with {found!r:.80}")


def opened(file: Path) -> TextIO:
    """The text of a file, unpacked where its name ends in .gz. Raises OSError."""
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding="utf-8-sig", newline="")
    return file.open(encoding="utf-8-sig", newline="")


def write_times(file: Path, times: Iterable[float]) -> None:
    """Write arrivals as one time a line, to a microsecond; the same ones make the same file. Raises OSError."""
    content = ("t\n" + "".join(f"{at:.6f}\n" for at in times)).encode()
    file.write_bytes(gzip.compress(content, 6, mtime=0) if file.suffix == ".gz" else content)


def _counts(file: Path, rows: Iterator[list[str]]) -> Counts:
    seconds: list[float] = []
    requests: list[int] = []
    for line, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) < 2:  # noqa: PLR2004 - the two columns
            raise UsageError(f"{file}:{line}: a row needs a second and its requests")
        seconds.append(_number(file, line, "second", row[0], float))
        requests.append(_number(file, line, "requests", row[1], int))
        if len(seconds) > 1 and seconds[-1] <= seconds[-2]:
            raise UsageError(f"{file}:{line}: second {row[0]} does not come after the previous one")
    if not sum(requests):
        raise UsageError(f"{file}: no requests")
    return Counts(np.array(seconds), np.array(requests, dtype=np.int64))


def _number(file: Path, line: int, column: str, text: str, kind: Callable[[str], Any]) -> Any:
    try:
        number = kind(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        name = "a whole number" if kind is int else "a number"
        raise UsageError(f"{file}:{line}: {column} is {text.strip()!r:.40}, not {name} of 0 or more")
    if number > _LONGEST:
        raise UsageError(f"{file}:{line}: {column} is {text.strip()!r:.40}; times count from the start of the trace")
    return number


def _process(
    source: str, rng: np.random.Generator, scale: float, speed: float, duration: float | None
) -> NDArray[np.float64]:
    name, _, text = source.partition(":")
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != (2 if name == "gamma" else 1):
        raise UsageError(f"{source!r}: write constant:RATE, poisson:RATE or gamma:RATE,CV")
    if duration is None:
        raise UsageError(f"{source!r} has no end: give --duration as well")
    rate = numbers[0] * scale * speed
    if name == "constant":
        return schedule.constant(rate, duration)
    times = schedule.gamma(rate, 1.0 if name == "poisson" else numbers[1], duration, rng)
    if not len(times):
        raise UsageError(f"{source!r}: no request comes within {duration} s")
    return times
