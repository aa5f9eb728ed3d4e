"""Inference requests and answers of the Open Inference Protocol (v2) as the messages of gRPC.

Inputs come raw (`raw_input_contents`, one for each tensor in their order) or typed (`contents`); outputs go raw, as
Triton sends them. A parser makes up to a hundred bytes of a byte of a message that is all empty fields, so these are
counted before it is run.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from spillway.agents.gateway.bodies import MAX_ID, InferRequest, bad
from spillway.agents.gateway.protocol import inference_pb2 as pb
from spillway.agents.gateway.tensors import BYTES, DTYPE_OF, Tensor, inputs_of, pack_bytes
from spillway.lineage.limits import too_large

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spillway.agents.gateway.signature import Signature
    from spillway.lineage.limits import Limits

_FIELDS: Final = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    BYTES: "bytes_contents",
}
_REFUSED: Final = ("shared_memory_region", "classification")
_LAST_OF_VARINT: Final = 128  # bytes below it end one
_VARINT_BITS: Final = 63
# By a field's number, the fields within it, or the bytes that each of its packed numbers takes once it is parsed.
_CONTENTS: Final = {1: 1, 2: 4, 3: 8, 4: 4, 5: 8}
_REQUEST: Final[dict[int, Any]] = {4: {}, 5: {3: 8, 4: {}, 5: _CONTENTS}, 6: {2: {}}}


def parsed(raw: bytes, limits: Limits) -> Any:
    """Return the ModelInferRequest in a message. Raises WireError (BAD_INPUT, TOO_LARGE) where there is none."""
    try:
        _check_wire(raw, limits)
        return pb.ModelInferRequest.FromString(raw)
    except (DecodeError, IndexError) as error:
        raise bad("the message is no ModelInferRequest of the Open Inference Protocol (v2)") from error


def _check_wire(raw: bytes, limits: Limits) -> None:
    """Bound what a parser would make of a message. Raises WireError(TOO_LARGE), IndexError or DecodeError."""
    fields = weight = 0
    parts = [(0, len(raw), _REQUEST)]
    while parts:
        at, end, within = parts.pop()
        while at < end:
            tag, at = _varint(raw, at)
            fields += 1
            size, inner = 0, within.get(tag >> 3)
            if tag & 7 == 2:  # noqa: PLR2004 - bytes, text, a message, packed numbers
                size, at = _varint(raw, at)
            elif tag & 7 == 0:
                _, at = _varint(raw, at)
            else:
                size = {1: 8, 5: 4}.get(tag & 7, len(raw) + 1)  # groups there are none
            if isinstance(inner, dict):
                parts.append((at, at + size, inner))
            elif inner and size:
                weight += inner * int(np.count_nonzero(np.frombuffer(raw[at : at + size], np.uint8) < _LAST_OF_VARINT))
            at += size
            if fields > limits.max_values:
                raise too_large("the number of fields (send tensors raw, or packed)", limits.max_values, "max_values")
        if at != end:
            raise DecodeError("a field is longer than the message")
    if weight > limits.max_message_bytes:
        raise too_large("what the typed contents take", limits.max_message_bytes, "max_message_bytes")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while shift <= _VARINT_BITS:
        byte = raw[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < _LAST_OF_VARINT:
            return number, at
        shift += 7
    raise DecodeError("a number has more than ten bytes")


def read_request(request: Any, signature: Signature, limits: Limits) -> InferRequest:
    """Return what a ModelInferRequest asks. Raises WireError (BAD_INPUT, TOO_LARGE) that names the place."""
    if len(request.id) > MAX_ID:
        raise bad(f"id: must have at most {MAX_ID} characters, not {len(request.id)}")
    for output in request.outputs:
        _refuse(output, "output")
    wanted = {output.name: True for output in request.outputs}
    signature.check_outputs(wanted)
    inputs = inputs_of(_tensors(request, limits), signature.inputs, limits)
    return InferRequest(inputs, request.id, _parameters(request.parameters), wanted or None, raw=True)


def _refuse(tensor: Any, what: str) -> None:
    for name in _REFUSED:
        if name in tensor.parameters:
            raise bad(f"{what} {tensor.name!r:.80}: {name} is not supported; leave it out")


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, parameter in given.items():
        choice = parameter.WhichOneof("parameter_choice")
        if choice is None:
            raise bad(f"parameter {name!r:.80}: has no value; set one of its choices")
        found[name] = getattr(parameter, choice)
    return found


def _tensors(request: Any, limits: Limits) -> list[Tensor]:
    raws, tensors = request.raw_input_contents, []
    if raws and len(raws) != len(request.inputs):
        raise bad(f"raw_input_contents has {len(raws)} entries for {len(request.inputs)} inputs; give each its own")
    for number, tensor in enumerate(request.inputs):
        _refuse(tensor, "input")
        if raws and tensor.HasField("contents"):
            raise bad(f"tensor {tensor.name!r:.80}: give either its contents or raw_input_contents, not both")
        if len(tensor.shape) > limits.max_rank:
            raise too_large(f"tensor {tensor.name!r:.80}: its rank {len(tensor.shape)}", limits.max_rank, "max_rank")
        data = raws[number] if raws else _typed(tensor, limits)
        tensors.append(Tensor(tensor.name, tensor.datatype, tuple(tensor.shape), data, _parameters(tensor.parameters)))
    return tensors


def _typed(tensor: Any, limits: Limits) -> bytes | list[Any]:
    """Return typed contents in the raw encoding; an empty list, which says why it is refused, for what is raw only."""
    field, name, count = _FIELDS.get(tensor.datatype), f"tensor {tensor.name!r:.80}", math.prod(tensor.shape)
    if field is None:
        return []
    strange = [each.name for each, _ in tensor.contents.ListFields() if each.name != field]
    if strange:
        raise bad(f"{name}: its data are in {strange[0]}, and those of {tensor.datatype} belong in {field}")
    values = getattr(tensor.contents, field)
    if len(values) != count:
        shape = list(tensor.shape)
        raise bad(f"{name}: {field} has {len(values)} elements, and shape {shape!s:.80} has {count}; make both agree")
    if tensor.datatype == BYTES:
        return pack_bytes(values)
    dtype = np.dtype(DTYPE_OF[tensor.datatype]).newbyteorder("<")
    if count * dtype.itemsize > limits.max_tensor_bytes:
        raise too_large(name, limits.max_tensor_bytes, "max_tensor_bytes")
    try:
        return np.fromiter(values, dtype, count).tobytes()
    except OverflowError as error:
        raise bad(f"{name}: its data are not {tensor.datatype}: {error}") from error


def answer(
    model: str, version: str, client_id: str, tensors: Iterable[Tensor], parameters: Mapping[str, str | float]
) -> Any:
    """Return a ModelInferResponse with these tensors, which are raw."""
    response = pb.ModelInferResponse(model_name=model, model_version=version, id=client_id)
    _set(response.parameters, parameters)
    for tensor in tensors:
        told = response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        _set(told.parameters, tensor.parameters)
        response.raw_output_contents.append(bytes(tensor.data))
    return response


def _set(parameters: Any, given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if isinstance(value, bool):
            parameters[name].bool_param = value
        elif isinstance(value, int):
            parameters[name].int64_param = value
        elif isinstance(value, float):
            parameters[name].double_param = value
        else:
            parameters[name].string_param = sendable(value)


def metadata(described: Mapping[str, Any]) -> Any:
    """Return the ModelMetadataResponse of `Signature.metadata`; it has no room for a tensor's parameters."""
    plain = ("name", "datatype", "shape")
    tensors = {
        side: [{key: tensor[key] for key in plain} for tensor in described[side]] for side in ("inputs", "outputs")
    }
    return pb.ModelMetadataResponse(**{**described, **tensors})


def sendable(text: str) -> str:
    """Return a text as UTF-8 can have it."""
    return text.encode("utf-8", "replace").decode()
