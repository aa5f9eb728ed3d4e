"""Inference requests and answers of the Open Inference Protocol (v2) as bodies of HTTP, with Triton's binary data.

A body is JSON, and behind it the raw data of those tensors that have the parameter `binary_data_size`, in their order;
the header `Inference-Header-Content-Length` says where the JSON ends. A request asks for raw outputs by `binary_data`
of one or `binary_data_output` of all.

The size of a body is for who receives it to bound.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.gateway.tensors import Tensor, inputs_of, read_json, tensor_of
from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.topology import names
from spillway.topology.quantities import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.agents.gateway.signature import Signature
    from spillway.lineage.limits import Limits
    from spillway.lineage.message import Value

JSON_LENGTH: Final = "Inference-Header-Content-Length"
MAX_ID: Final = 256  # characters
_SIZE: Final = "binary_data_size"
_BINARY: Final = "binary_data"
_ALL_BINARY: Final = "binary_data_output"
_SHARED: Final = "shared_memory_region"
_dumps: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class InferRequest:
    """What one inference request asks, by REST or gRPC."""

    inputs: dict[str, Value]
    id: str = ""
    """The client's own, to be echoed; it is not the request id."""
    parameters: dict[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, bool] | None = None
    """The outputs that are wanted, and whether raw; None: all that there are."""
    raw: bool = False
    """Whether outputs are to be raw where `outputs` names none."""


def read_request(body: bytes, json_length: int | None, signature: Signature, limits: Limits) -> InferRequest:
    """Return the request in a body; `json_length` is what the header says, if it is there.

    Raises WireError (BAD_INPUT, TOO_LARGE) that names the place and the fix.
    """
    length = len(body) if json_length is None else json_length
    if not 0 <= length <= len(body):
        raise bad(f"{JSON_LENGTH} is {length}, and the body has {len(body)} bytes")
    told = read_object(body[:length], limits)
    name, parameters = client_id(told), _parameters(told, "the request")
    raw = _flag(parameters.pop(_ALL_BINARY, False), _ALL_BINARY)
    wanted = dict(_outputs(told, raw=raw)) if told.get("outputs") else None
    signature.check_outputs(wanted or ())
    inputs = inputs_of(_tensors(told, memoryview(body)[length:]), signature.inputs, limits)
    return InferRequest(inputs, name, parameters, wanted, raw)


def read_object(text: bytes, limits: Limits) -> dict[str, Any]:
    """Return the JSON object that a body is. Raises WireError (BAD_INPUT, TOO_LARGE) for anything else."""
    told = read_json(text, limits, "the body")
    if not isinstance(told, dict):
        raise bad(f'the body must be a JSON object, as {{"inputs": ...}}, not {type(told).__name__}')
    return told


def client_id(told: Mapping[str, Any]) -> str:
    """Return the id that a query's client gave it. Raises WireError(BAD_INPUT) for one that is no text, or too long."""
    name = "" if told.get("id") is None else told["id"]
    if not isinstance(name, str) or len(name) > MAX_ID:
        raise bad(f"id: must be a text of at most {MAX_ID} characters, not {shown(name)}")
    return name


def _parameters(told: Mapping[str, Any], what: str) -> dict[str, Any]:
    parameters = told.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise bad(f"the parameters of {what} must be an object, not {shown(parameters)}")
    return dict(parameters or {})


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise bad(f"parameter {name!r}: must be true or false, not {shown(value)}")
    return value


def _entries(told: Mapping[str, Any], what: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the named objects of a list."""
    entries = told.get(what)
    if not isinstance(entries, list):
        raise bad(f"{what}: must be a list of objects, each with a name, not {shown(entries)}")
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise bad(f'{what}[{number}]: must be an object with a name, as {{"name": "x"}}, not {shown(entry)}')
    return [(entry["name"], entry) for entry in entries]


def _outputs(told: Mapping[str, Any], *, raw: bool) -> list[tuple[str, bool]]:
    wanted = []
    for name, entry in _entries(told, "outputs"):
        parameters = _parameters(entry, f"output {name!r:.80}")
        if _SHARED in parameters or parameters.get("classification"):
            raise bad(f"output {name!r:.80}: classification and shared memory are not supported; leave them out")
        wanted.append((name, _flag(parameters.get(_BINARY, raw), _BINARY)))
    return wanted


def _tensors(told: Mapping[str, Any], tail: memoryview) -> list[Tensor]:
    at, tensors = 0, []
    for name, entry in _entries(told, "inputs"):
        place = f"tensor {name!r:.80}"
        parameters, shape = _parameters(entry, place), entry.get("shape")
        if _SHARED in parameters:
            raise bad(f"{place}: shared memory is not supported; send its data in the request")
        if not isinstance(shape, list):
            raise bad(f"{place}: its shape must be a list of whole numbers, not {shown(shape)}")
        size = parameters.pop(_SIZE, None)
        if (size is None) != ("data" in entry):
            raise bad(f"{place}: give either 'data' or the parameter {_SIZE!r} and the bytes behind the JSON")
        data = entry.get("data")
        if size is not None:
            if type(size) is not int or not 0 <= size <= len(tail) - at:
                left = len(tail) - at
                raise bad(f"{place}: {_SIZE} is {shown(size)}, and {left} bytes are left (is {JSON_LENGTH} right?)")
            data, at = tail[at : at + size], at + size
        tensors.append(Tensor(name, entry.get("datatype", ""), tuple(shape), data, parameters))  # type: ignore[arg-type]
    if at != len(tail):
        raise bad(f"{len(tail) - at} bytes are left behind the last tensor's; {_SIZE} of all must make up the whole")
    return tensors


def selected(outputs: Mapping[str, Value], wanted: Mapping[str, bool] | None) -> dict[str, Value]:
    """Return the outputs that a request asks for. Raises WireError(BAD_INPUT) for one that the prediction lacks."""
    if wanted is None:
        return dict(outputs)
    for name in wanted:
        if name not in outputs:
            raise bad(f"the prediction has no output {name!r:.80}; {names.meant(name[:80], list(outputs))}")
    return {name: outputs[name] for name in wanted}


def output_tensors(outputs: Mapping[str, Value], request: InferRequest) -> list[Tensor]:
    """Return the outputs that a request asks for, each as it asks. Raises WireError as `selected` and `tensor_of`."""
    raw = request.outputs or {}
    return [
        tensor_of(name, value, raw=raw.get(name, request.raw))
        for name, value in selected(outputs, request.outputs).items()
    ]


def write_response(
    model: str,
    version: str,
    request: InferRequest,
    outputs: Mapping[str, Value],
    parameters: Mapping[str, str | float],
    error: str = "",
) -> tuple[bytes, int | None]:
    """Return an answer's body, and the length of its JSON where binary data follow.

    `error` says why an answer with outputs is none that counts, as of one that is late. Raises WireError as
    `output_tensors`.
    """
    told: list[dict[str, Any]] = []
    tail: list[Any] = []
    for tensor in output_tensors(outputs, request):
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
        notes = dict(tensor.parameters)
        if tensor.raw:
            notes[_SIZE] = len(tensor.data)
            tail.append(tensor.data)
        else:
            entry["data"] = tensor.data
        told.append({**entry, "parameters": notes} if notes else entry)
    answer: dict[str, Any] = {"error": error} if error else {}
    answer |= {"model_name": model, "model_version": version, **({"id": request.id} if request.id else {})}
    text = _dumps({**answer, "parameters": dict(parameters), "outputs": told}).encode("utf-8", "replace")
    return b"".join((text, *tail)), len(text) if tail else None


def bad(text: str) -> WireError:
    """Return the error of a request that is not as it must be; the text says what to change."""
    return WireError(reasons.BAD_INPUT, text)
