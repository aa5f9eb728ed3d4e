"""A query's inputs and an outcome as JSON, which has neither tensors nor bytes.

A tensor is {"dtype": "float32", "shape": [2, 3], "data": [[...], [...]]}; in inputs the shape may be left out, and the
data may be flat. A large one is {"dtype", "shape", "base64"} (`spillway.lineage.values.json_tensors`). Bytes are
{"base64": "..."}. Numbers that JSON lacks are the texts "NaN", "Infinity" and "-Infinity", which a tensor's data may
hold as well.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import TYPE_CHECKING, Any, Final

from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.limits import LOOSEST_LIMITS, Limits, too_large
from spillway.lineage.message import Outcome, StageTiming
from spillway.lineage.values.json_tensors import NON_FINITE, describes_tensor, read_tensor, show_tensor
from spillway.lineage.values.tensors import is_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

MIME: Final = "application/json"
_dumps = json.JSONEncoder(ensure_ascii=False).encode
_SCALARS = frozenset({type(None), bool, int, float})
_BYTES_KEYS = frozenset({"base64"})


def read_inputs(text: str | bytes, limits: Limits = LOOSEST_LIMITS) -> dict[str, Any]:
    """Read a query's inputs from a JSON object.

    Raises `WireError` (CORRUPT, BAD_INPUT, TOO_LARGE) naming the place in it.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise WireError(reasons.CORRUPT, f"not JSON: {error.msg} at {place}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, a number of thousands of digits, lists in lists in ..
        raise WireError(reasons.CORRUPT, f"not JSON that can be read: {error}") from error
    if not isinstance(value, dict):
        raise WireError(reasons.BAD_INPUT, f"a JSON object of named inputs is needed, not {type(value).__name__}")
    return _named(value, "", limits)


def read_value(value: Any, where: str = "inputs", limits: Limits = LOOSEST_LIMITS) -> Any:
    """Turn a JSON value into one that can travel.

    Raises `WireError` (BAD_INPUT, TOO_LARGE) naming the place in the inputs.
    """
    return _Reading(limits).value(value, where, 0)


def _named(values: dict[str, Any], where: str, limits: Limits) -> dict[str, Any]:
    reading = _Reading(limits)
    return {name: reading.value(item, f"{where}{name:.40}", 0) for name, item in values.items()}


class _Reading:
    """Reads the values of one message, as many and as deep as its limits allow."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left = limits.max_values

    def value(self, value: Any, where: str, depth: int) -> Any:
        if not isinstance(value, (list, dict)):
            return value
        if isinstance(value, dict):
            if value.keys() == _BYTES_KEYS:
                return _bytes(value["base64"], where)
            if describes_tensor(value):
                return read_tensor(value, where, self._limits)
        self._left -= len(value)
        if self._left < 0:
            raise too_large(f"{where}: the number of values in the message", self._limits.max_values, "max_values")
        if depth == self._limits.max_depth:
            raise too_large(f"{where}: the message's nesting", self._limits.max_depth, "max_depth")
        if isinstance(value, list):
            return [self.value(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
        return {name: self.value(item, f"{where}.{name!s:.40}", depth + 1) for name, item in value.items()}


def write_outcome(outcome: Outcome, request_id: str, seconds: float, most: int | None = None) -> bytes:
    """Write what `show_outcome` shows. Raises `WireError` (TOO_LARGE) as soon as that has more than `most` bytes."""
    pieces, size = [], 0
    for piece in _outcome_pieces(outcome, request_id, seconds):
        pieces.append(piece.encode("utf-8", "replace"))
        size += len(pieces[-1])
        if most is not None and size > most:
            raise too_large("an outcome in JSON", most, "max_message_bytes")
    return b"".join(pieces)


def _outcome_pieces(outcome: Outcome, request_id: str, seconds: float) -> Iterator[str]:
    yield _dumps(show_outcome(outcome, request_id, seconds, outputs=False))[:-1] + ', "outputs": '
    yield from _pieces(outcome.outputs)
    yield "}"


def _pieces(value: Any) -> Iterator[str]:
    """Yield a value's text, no piece longer than a tensor or a string: between them other threads go on."""
    named = isinstance(value, dict)
    if not (named or isinstance(value, list)) or _SCALARS.issuperset(map(type, value.values() if named else value)):
        yield _dumps(show_value(value))
        return
    before = "{" if named else "["
    for each in value.items() if named else value:
        yield f"{before}{_dumps(each[0])}: " if named else before
        yield from _pieces(each[1] if named else each)
        before = ", "
    yield "}" if named else "]"


def read_outcome(text: bytes, limits: Limits = LOOSEST_LIMITS) -> Outcome:
    """Read what `write_outcome` has written. Raises `WireError` (CORRUPT, BAD_INPUT, TOO_LARGE) for anything else."""
    try:
        told = json.loads(text)
        timings = [
            StageTiming(
                one["stage"],
                one["queue_ms"] / 1000,
                one["wait_ms"] / 1000,
                one["exec_ms"] / 1000,
                one["batch"],
                one["model"],
                one["version"],
                one.get("arrived_us", 0),
            )
            for one in told["timings"]
        ]
        outputs, flags = (_named(told[name], f"{name}.", limits) for name in ("outputs", "flags"))
        return Outcome(told["kind"], outputs, told["reason"], told["text"], told["stage"], timings, flags)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise WireError(reasons.CORRUPT, f"not an outcome in JSON: {error!r}") from error


def show_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: show_value(item) for name, item in value.items()}
    if isinstance(value, list):
        return [show_value(item) for item in value]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, float):
        return value if math.isfinite(value) else NON_FINITE[str(value)]
    if is_tensor(value):
        return show_tensor(value)
    return value


def show_outcome(
    outcome: Outcome, request_id: str, seconds: float, *, late: bool | None = None, outputs: bool = True
) -> dict[str, Any]:
    """Give an outcome, and how long it took, as a JSON object; durations in milliseconds.

    `late`: whether it came after its deadline, where the one who shows it knows. `outputs`: whether they are shown.
    """
    return {
        "request_id": request_id,
        "kind": outcome.kind,
        **({"outputs": show_value(outcome.outputs)} if outputs else {}),
        "reason": outcome.reason,
        "text": outcome.text,
        "stage": outcome.stage,
        "latency_ms": _ms(seconds),
        **({} if late is None else {"late": late}),
        "timings": [
            {
                "stage": timing.stage,
                "queue_ms": _ms(timing.queued),
                "wait_ms": _ms(timing.waited),
                "exec_ms": _ms(timing.executed),
                "batch": timing.batch,
                "model": timing.model,
                "version": timing.version,
                "arrived_us": timing.arrived,
            }
            for timing in outcome.timings
        ],
        "flags": show_value(outcome.flags),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _bytes(text: Any, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise WireError(reasons.BAD_INPUT, f"{where}: not base64: {error}") from error
