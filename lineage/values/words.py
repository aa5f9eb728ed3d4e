"""A replica's word for the others (`spillway.Word`) to a record and back.

A word is small, as every replica says one a period and every replica hears all of them. Its durations and rates are
floats of two bytes: off by at most 1/2048 (.05 %) of themselves, or by 30 ns; what is above 65,504 is said as that.
Batch waits and hops travel as quantiles, a byte each, in 255ths of the largest of them: one is off by at most 1/510
(.2 %) of the largest, beyond what the largest is off by. When its process began is told as how long it has run, which
takes fewer bytes.

`spillway.PlanWord` is the form that words had first (floats of four bytes, waits as differences in 10 us, of the hops a
single one). It is read, and no longer written. Whether what a word says is plausible is not judged here.
"""

from __future__ import annotations

import struct
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from lineage import reasons
from lineage.errors import WireError
from lineage.limits import too_large
from lineage.message import PlanWord
from lineage.values.decoding import read_length, read_long

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lineage.limits import Limits

MAX_WAITS: Final = 64
WAIT_STEPS: Final = 255  # of the largest wait
FIRST_WAIT_STEP: Final = 1e-5  # seconds, of the first form
# As they follow one another in `numbers`, before the longest of the hops and of the waits.
_NUMBERS: Final = (
    *("span", "queueing", "entered", "recent_batch", "duration", "recent_duration"),
    *("arrival_rate", "completion_rate", "drop_rate", "longest"),
)
_numbers = struct.Struct(f"<{len(_NUMBERS) + 2}e")
_MOST: Final = 65_504.0  # that two bytes hold
_INT_LEAST, _INT_MOST = -(1 << 31), (1 << 31) - 1


def pack_word(word: PlanWord) -> dict[str, Any]:
    """The record of a word. Raises WireError(TOO_LARGE or NOT_ENCODABLE)."""
    for durations in (word.waits, word.hops):
        if len(durations) > MAX_WAITS:
            raise too_large(f"a summary of {len(durations)} durations", MAX_WAITS)
    for number in (word.replica, word.waits_seen, word.batch, word.backlog):
        if not _INT_LEAST <= number <= _INT_MOST:  # fastavro would write it, as a long
            raise WireError(reasons.NOT_ENCODABLE, f"{number} does not fit 32 bits")
    longest, waits = _shares(word.waits)
    slowest, hops = _shares(word.hops)
    return {
        "stage": word.stage,
        "replica": word.replica,
        "at_us": word.at_us,
        "up_us": word.at_us - word.began_us,
        "numbers": _packed([*(getattr(word, name) for name in _NUMBERS), slowest, longest]),
        "waits": waits,
        "waits_seen": word.waits_seen,
        "batch": word.batch,
        "backlog": word.backlog,
        "hbf": word.hbf,
        "hops": hops,
    }


def read_word(buffer: bytes, at: int, limits: Limits) -> tuple[PlanWord, int]:
    """The word at `at`, with the position after it. Raises as the methods of `OwnDecoder` do."""
    stage, at = _text(buffer, at, limits.max_name_bytes)
    replica, at = read_long(buffer, at)
    at_us, at = read_long(buffer, at)
    up_us, at = read_long(buffer, at)
    *numbers, slowest, longest = _numbers.unpack_from(buffer, at)
    waits, at = _summary(buffer, at + _numbers.size)
    waits_seen, at = read_long(buffer, at)
    batch, at = read_long(buffer, at)
    backlog, at = read_long(buffer, at)
    hbf = buffer[at]
    if hbf > 1:
        raise WireError(reasons.CORRUPT, "a boolean is neither 0 nor 1")
    hops, at = _summary(buffer, at + 1)
    word = PlanWord(
        *(stage, replica, at_us - up_us, at_us),
        **dict(zip(_NUMBERS, numbers, strict=True)),
        waits=_waits(waits, longest),
        waits_seen=waits_seen,
        batch=batch,
        backlog=backlog,
        hbf=hbf == 1,
        hops=_waits(hops, slowest),
    )
    return word, at


def word_of(record: dict[str, Any], limits: Limits) -> PlanWord:
    """The word in a record that was written with another version of the schema."""
    _check(record, limits)
    *numbers, slowest, longest = _numbers.unpack(record["numbers"])
    kept = {name: record[name] for name in ("stage", "replica", "at_us", "waits_seen", "batch", "backlog", "hbf")}
    kept |= dict(zip(_NUMBERS, numbers, strict=True))
    kept["hops"] = _waits(record["hops"], slowest)
    return PlanWord(began_us=record["at_us"] - record["up_us"], waits=_waits(record["waits"], longest), **kept)


def first_word_of(record: dict[str, Any], limits: Limits) -> PlanWord:
    _check(record, limits)
    kept = {**record, "waits": _seconds(record["waits"]), "hops": (record["transfer"],)}
    del kept["transfer"]
    return PlanWord(**kept)


def _check(record: dict[str, Any], limits: Limits) -> None:
    for name in ("waits", "hops"):
        if len(record.get(name, ())) > MAX_WAITS:
            raise too_large(f"a summary of {len(record[name])} durations", MAX_WAITS)
    if len(record["stage"].encode()) > limits.max_name_bytes:
        raise too_large(f"a stage's name of {len(record['stage'])} characters", limits.max_name_bytes, "max_name_bytes")


def _packed(numbers: Sequence[float]) -> bytes:
    try:
        return _numbers.pack(*(min(max(number, -_MOST), _MOST) if isfinite(number) else number for number in numbers))
    except (TypeError, struct.error, OverflowError) as error:
        raise WireError(reasons.NOT_ENCODABLE, f"not {len(_NUMBERS)} numbers: {str(error)[:200]}") from error


def _shares(waits: Sequence[float]) -> tuple[float, bytes]:
    try:
        longest = max(waits, default=0.0)
        if not longest:
            return longest, bytes(len(waits))
        return longest, bytes(round(WAIT_STEPS * wait / longest) for wait in waits)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(reasons.NOT_ENCODABLE, f"no duration: {str(error)[:200]}") from error


def _waits(shares: bytes, longest: float) -> tuple[float, ...]:
    return tuple(share * longest / WAIT_STEPS for share in shares)


def _seconds(differences: Iterable[int]) -> tuple[float, ...]:
    seconds, steps = [], 0
    for difference in differences:
        steps += difference
        seconds.append(steps * FIRST_WAIT_STEP)
    return tuple(seconds)


def _summary(buffer: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_length(buffer, at)
    if size > MAX_WAITS:
        raise too_large(f"a summary of {size} durations", MAX_WAITS)
    return buffer[at : at + size], at + size


def _text(buffer: bytes, at: int, most: int) -> tuple[str, int]:
    size, at = read_length(buffer, at)
    if size > most:
        raise too_large(f"a text of {size} bytes", most)
    return buffer[at : at + size].decode(), at + size
