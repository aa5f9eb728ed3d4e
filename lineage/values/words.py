"""A replica's word for the others (`spillway.PlanWord`) to a record and back.

Batch waits travel as quantiles, ascending, in whole steps of 10 us, each as its difference from the one before, which
takes a byte or two instead of eight: a wait is off by at most 5 us. The other durations and rates are floats of four
bytes, off by at most 6e-8 of themselves. Whether what a word says is plausible is not judged here.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from lineage import reasons
from lineage.errors import WireError
from lineage.limits import too_large
from lineage.message import PlanWord
from lineage.values.decoding import read_count, read_length, read_long

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lineage.limits import Limits

MAX_WAITS: Final = 64
WAIT_STEP: Final = 1e-5
_floats_of_mean = struct.Struct("<fff").unpack_from
_floats_of_rates = struct.Struct("<ffffff").unpack_from
_floats = struct.Struct("<ff").unpack_from
_FLOAT_BYTES: Final = 4
_INT_LEAST, _INT_MOST = -(1 << 31), (1 << 31) - 1


def pack_word(word: PlanWord) -> dict[str, Any]:
    """The record of a word. Raises WireError(TOO_LARGE or NOT_ENCODABLE)."""
    if len(word.waits) > MAX_WAITS:
        raise too_large(f"a summary of {len(word.waits)} batch waits", MAX_WAITS)
    record = {name: getattr(word, name) for name in PlanWord.__slots__}
    record["waits"] = waits = _steps(word.waits)
    for number in (word.replica, word.waits_seen, word.batch, word.backlog, *waits):
        if not _INT_LEAST <= number <= _INT_MOST:  # fastavro would write it, as a long
            raise WireError(reasons.NOT_ENCODABLE, f"{number} does not fit 32 bits")
    return record


def read_word(buffer: bytes, at: int, limits: Limits) -> tuple[PlanWord, int]:
    """The word at `at`, with the position after it. Raises as the methods of `OwnDecoder` do."""
    stage, at = _text(buffer, at, limits.max_name_bytes)
    replica, at = read_long(buffer, at)
    began_us, at = read_long(buffer, at)
    at_us, at = read_long(buffer, at)
    span, queueing, entered = _floats_of_mean(buffer, at)
    waits, at = _waits(buffer, at + 3 * _FLOAT_BYTES)
    waits_seen, at = read_long(buffer, at)
    batch, at = read_long(buffer, at)
    rates = _floats_of_rates(buffer, at)
    backlog, at = read_long(buffer, at + 6 * _FLOAT_BYTES)
    hbf = buffer[at]
    if hbf > 1:
        raise WireError(reasons.CORRUPT, "a boolean is neither 0 nor 1")
    longest, transfer = _floats(buffer, at + 1)
    fields = (stage, replica, began_us, at_us, span, queueing, entered, waits, waits_seen, batch, *rates)
    return PlanWord(*fields, backlog, hbf == 1, longest, transfer), at + 1 + 2 * _FLOAT_BYTES  # type: ignore[call-arg]


def word_of(record: dict[str, Any], limits: Limits) -> PlanWord:
    """The word in a record that was written with another version of the schema."""
    differences = record["waits"]
    if len(differences) > MAX_WAITS:
        raise too_large(f"a summary of {len(differences)} batch waits", MAX_WAITS)
    if len(record["stage"].encode()) > limits.max_name_bytes:
        raise too_large(f"a stage's name of {len(record['stage'])} characters", limits.max_name_bytes)
    return PlanWord(**{**record, "waits": _seconds(differences)})


def _steps(waits: Sequence[float]) -> list[int]:
    differences, before = [], 0
    try:
        for wait in waits:
            now = round(wait / WAIT_STEP)
            differences.append(now - before)
            before = now
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(reasons.NOT_ENCODABLE, f"no batch wait: {str(error)[:200]}") from error
    return differences


def _seconds(differences: Iterable[int]) -> tuple[float, ...]:
    seconds, steps = [], 0
    for difference in differences:
        steps += difference
        seconds.append(steps * WAIT_STEP)
    return tuple(seconds)


def _waits(buffer: bytes, at: int) -> tuple[tuple[float, ...], int]:
    differences: list[int] = []
    while True:
        count, at = read_count(buffer, at)
        if not count:
            return _seconds(differences), at
        if len(differences) + count > MAX_WAITS:
            raise too_large(f"a summary of {len(differences) + count} batch waits", MAX_WAITS)
        for _ in range(count):
            difference, at = read_long(buffer, at)
            differences.append(difference)


def _text(buffer: bytes, at: int, most: int) -> tuple[str, int]:
    size, at = read_length(buffer, at)
    if size > most:
        raise too_large(f"a text of {size} bytes", most)
    return buffer[at : at + size].decode(), at + size
