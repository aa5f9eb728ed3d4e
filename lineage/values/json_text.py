"""A query's inputs and an outcome as JSON, which has neither tensors nor bytes.

A tensor is {"dtype": "float32", "shape": [2, 3], "data": [[...], [...]]}; in inputs the shape may be left out, and the
data may be flat. Bytes are {"base64": "..."}. Numbers that JSON lacks are the texts "NaN", "Infinity" and "-Infinity",
which a tensor's data may hold as well.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import Any, Final

import numpy as np

from lineage import reasons
from lineage.errors import WireError
from lineage.message import Outcome, StageTiming
from lineage.values.tensors import BFLOAT16, DTYPES, Bfloat16, is_tensor

MIME: Final = "application/json"
_TENSOR_KEYS = frozenset({"dtype", "shape", "data"})
_BYTES_KEYS = frozenset({"base64"})
_NON_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def read_inputs(text: str | bytes) -> dict[str, Any]:
    """Read a query's inputs from a JSON object. Raises `WireError` (CORRUPT, BAD_INPUT) naming the place in it."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise WireError(reasons.CORRUPT, f"not JSON: {error.msg} at {place}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, a number of thousands of digits, lists in lists in ..
        raise WireError(reasons.CORRUPT, f"not JSON that can be read: {error}") from error
    if not isinstance(value, dict):
        raise WireError(reasons.BAD_INPUT, f"a JSON object of named inputs is needed, not {type(value).__name__}")
    return {name: read_value(item, name) for name, item in value.items()}


def read_value(value: Any, where: str = "inputs") -> Any:
    """Turn a JSON value into one that can travel. Raises `WireError` (BAD_INPUT) naming the place in the inputs."""
    if isinstance(value, list):
        return [read_value(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if value.keys() == _BYTES_KEYS:
        return _bytes(value["base64"], where)
    if {"dtype", "data"} <= value.keys() <= _TENSOR_KEYS:
        return _tensor(value, where)
    return {name: read_value(item, f"{where}.{name}") for name, item in value.items()}


def write_outcome(outcome: Outcome, request_id: str, seconds: float) -> bytes:
    return json.dumps(show_outcome(outcome, request_id, seconds), ensure_ascii=False).encode()


def read_outcome(text: bytes) -> Outcome:
    """Read what `write_outcome` has written. Raises `WireError` (CORRUPT, BAD_INPUT) for anything else."""
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
            )
            for one in told["timings"]
        ]
        outputs, flags = read_value(told["outputs"], "outputs"), read_value(told["flags"], "flags")
        return Outcome(told["kind"], outputs, told["reason"], told["text"], told["stage"], timings, flags)
    except (ValueError, RecursionError, LookupError, TypeError) as error:
        raise WireError(reasons.CORRUPT, f"not an outcome in JSON: {error!r}") from error


def show_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: show_value(item) for name, item in value.items()}
    if isinstance(value, list):
        return [show_value(item) for item in value]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, float):
        return value if math.isfinite(value) else _NON_FINITE[str(value)]
    if is_tensor(value):
        return _show_tensor(value)
    return value


def show_outcome(outcome: Outcome, request_id: str, seconds: float, *, late: bool | None = None) -> dict[str, Any]:
    """Give an outcome, and how long it took, as a JSON object; durations in milliseconds.

    `late`: whether it came after its deadline, where the one who shows it knows.
    """
    return {
        "request_id": request_id,
        "kind": outcome.kind,
        "outputs": show_value(outcome.outputs),
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


def _tensor(value: dict[str, Any], where: str) -> Any:
    name = value["dtype"]
    dtype = np.dtype("<f4") if name == BFLOAT16 else DTYPES.get(name) if isinstance(name, str) else None
    if dtype is None:
        raise WireError(
            reasons.BAD_INPUT, f"{where}: there is no dtype {name!r}; use one of {', '.join((*DTYPES, BFLOAT16))}"
        )
    try:
        array = np.array(value["data"], dtype=dtype)
        if "shape" in value:
            array = array.reshape(value["shape"])
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(reasons.BAD_INPUT, f"{where}: not a tensor of {name}: {error}") from error
    if name == BFLOAT16:
        bits = array.view("<u4")
        rounded = bits + 0x7FFF + ((bits >> 16) & 1)  # to the nearest, ties to even
        return Bfloat16((rounded >> 16).astype(np.uint16))
    return array


def _show_tensor(tensor: Any) -> dict[str, Any]:
    if isinstance(tensor, Bfloat16):
        name, array = BFLOAT16, tensor.float32()
    elif isinstance(tensor, np.ndarray):
        name, array = tensor.dtype.name, tensor
    else:  # torch's, which stands for bfloat16 alone
        name, array = str(tensor.dtype).removeprefix("torch."), tensor.float().numpy()
    # A complex number is a pair of real and imaginary part.
    plain = np.stack([array.real, array.imag], axis=-1) if array.dtype.kind == "c" else array
    return {"dtype": name, "shape": list(array.shape), "data": show_value(plain.tolist())}
