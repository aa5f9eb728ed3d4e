"""Between the tensors of the Open Inference Protocol (v2) and the values that Spillway carries.

`Tensor` is the form that REST's JSON, REST's binary data and gRPC share. Its data are a list, as JSON has it (flat or
nested as the shape says), or bytes: the protocol's raw encoding, little-endian and in C order, an element of BYTES with
its length before it (four bytes).

    value                           tensor
    an array                        its datatype and shape; complex ones are refused
    int, float, bool                INT64, FP64, BOOL of shape []
    text, bytes                     BYTES [1]
    a list, a mapping, None         BYTES [1] of JSON as in docs/clients.md, parameter content_type: json

The other way about, what the pipeline declares decides: `int` takes any integer of shape [] or [1], `bytes` takes text
as it is, `list` and `dict` take JSON without the parameter. Where nothing is declared, FP64, INT64 and BOOL of shape []
are numbers, BYTES [1] and [] is text if it is UTF-8 and bytes if not, other BYTES are lists of these, and JSON is what
it says. So an array of shape [] may come back as a number, raw bytes that are UTF-8 as text, and a NaN without its
payload; nothing else changes but within JSON, where numbers that are not finite become texts.

JSON has no bytes and no numbers that are not finite. Bytes are base64 in it, with the parameter content_type: base64;
those numbers are the texts "NaN", "Infinity" and "-Infinity", and a request may also have them as Python's json writes
them, bare. FP16 and BF16 come and go raw only.

Everything is counted, and held to the pipeline's limits, before an array is made of it.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.limits import too_large
from spillway.lineage.values.json_tensors import NON_FINITE, elements, flattened
from spillway.lineage.values.json_text import read_value, show_value
from spillway.lineage.values.plain import LONG_MOST
from spillway.lineage.values.tensors import BFLOAT16, WIRE_DTYPES, is_tensor, named, view
from spillway.topology.quantities import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spillway.lineage.limits import Limits
    from spillway.lineage.message import Value
    from spillway.topology.spec import InputSpec

BYTES: Final = "BYTES"
_INTEGERS: Final = {f"{sign}INT{bits}": f"{sign.lower()}int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}
DTYPE_OF: Final = {
    "BOOL": "bool",
    **_INTEGERS,
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BF16": BFLOAT16,
}
DATATYPE_OF: Final = {dtype: datatype for datatype, dtype in DTYPE_OF.items()}
SCALARS: Final = {"bool": "BOOL", "int": "INT64", "float": "FP64"}  # by Python's types
RAW_ONLY: Final = frozenset({"FP16", "BF16"})
CONTENT_TYPE: Final = "content_type"
JSON: Final = "json"
BASE64: Final = "base64"
_STRUCTURES: Final = frozenset({"list", "dict"})
_KINDS: Final = {"bool": "b", "int": "iu", "float": "iuf"}  # of arrays that are one, by what is declared
_ROW_BYTES: Final = 32  # of a nested tensor's rows, on the average: as many lists as that leaves may JSON have
_LENGTH: Final = struct.Struct("<I")
_dumps: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named tensor as the protocol has it; `data` is a list as in JSON, or bytes in the raw encoding."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: list[Any] | bytes | memoryview
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def raw(self) -> bool:
        return isinstance(self.data, bytes | memoryview)


def inputs_of(tensors: Iterable[Tensor], declared: Mapping[str, InputSpec], limits: Limits) -> dict[str, Value]:
    """Return a query's inputs. Raises WireError (BAD_INPUT, TOO_LARGE) that names the tensor and the fix."""
    inputs: dict[str, Value] = {}
    for tensor in tensors:
        if tensor.name in inputs:
            raise _bad(tensor.name, "is given twice; give each input once")
        inputs[tensor.name] = value_of(tensor, declared.get(tensor.name), limits)
    return inputs


def value_of(tensor: Tensor, declared: InputSpec | None, limits: Limits) -> Value:
    """Return the value that a tensor holds. Raises WireError (BAD_INPUT, TOO_LARGE) that names the tensor."""
    dtype = None if declared is None else declared.dtype
    if tensor.datatype == BYTES:
        return _text_value(tensor, dtype, limits)
    found = DTYPE_OF.get(tensor.datatype) if isinstance(tensor.datatype, str) else None
    if found is None:
        known = ", ".join((*DTYPE_OF, BYTES))
        raise _bad(tensor.name, f"there is no datatype {shown(tensor.datatype)}; use one of {known}")
    array = _of_raw(tensor, found, limits) if tensor.raw else _of_list(tensor, found, limits)
    return _as_declared(array, tensor.datatype, declared)


def _as_declared(array: Any, datatype: str, declared: InputSpec | None) -> Value:
    """Return a number where one is declared, or where nothing is and the tensor is what a number becomes."""
    dtype, shape = (None, None) if declared is None else (declared.dtype, declared.shape)
    if not isinstance(array, np.ndarray) or shape:  # bfloat16, or a tensor is declared
        return array
    if dtype is None:
        single = array.shape == () and datatype in SCALARS.values()
    else:  # a bool may be an array of shape [1] as well
        shapes = {(), (1,)} if dtype != "bool" or shape == () else {()}
        single = array.dtype.kind in _KINDS.get(dtype, "") and array.shape in shapes
    if not single:
        return array  # where it does not fit, the stage says so
    number = array.item()
    if type(number) is int and number > LONG_MOST:
        return array
    return float(number) if dtype == "float" else number


def _count(tensor: Tensor, size: int, limits: Limits) -> int:
    """Return how many elements of `size` bytes (0: of BYTES) the shape has. Raises WireError where it is none."""
    shape = tensor.shape
    wrong = [length for length in shape if type(length) is not int or not 0 <= length <= LONG_MOST]
    if wrong:
        raise _bad(tensor.name, f"its shape must be a list of whole numbers of at least 0, not of {shown(wrong[0])}")
    if len(shape) > limits.max_rank:
        raise too_large(f"tensor {tensor.name!r:.80}: its rank {len(shape)}", limits.max_rank, "max_rank")
    spread = math.prod(length or 1 for length in shape)  # numpy computes with a dimension even where another is 0
    if size and spread * size > limits.max_tensor_bytes:
        told = f"tensor {tensor.name!r:.80}: its shape {list(shape)!r:.80}"
        raise too_large(told, limits.max_tensor_bytes, "max_tensor_bytes")
    if not size and spread > limits.max_values:
        raise too_large(f"tensor {tensor.name!r:.80}: its {spread} elements", limits.max_values, "max_values")
    return math.prod(shape)


def _of_raw(tensor: Tensor, dtype: str, limits: Limits) -> Any:
    data, wire = cast("bytes", tensor.data), dtype.encode()
    size = WIRE_DTYPES[wire].itemsize
    wanted = _count(tensor, size, limits) * size
    if len(data) != wanted:
        told = f"it has {len(data)} bytes of data, and {tensor.datatype} of shape {list(tensor.shape)} takes {wanted}"
        raise _bad(tensor.name, f"{told}; make both agree")
    try:
        return view(data, 0, wanted, wire, list(tensor.shape), limits)
    except WireError as error:  # a bool that is neither 0 nor 1
        raise _bad(tensor.name, str(error)) from error


def _of_list(tensor: Tensor, dtype: str, limits: Limits) -> Any:
    if tensor.datatype in RAW_ONLY:
        raise _bad(tensor.name, f"{tensor.datatype} comes raw only: as binary data or raw_input_contents; or use FP32")
    flat = _flat(tensor, _count(tensor, WIRE_DTYPES[dtype.encode()].itemsize, limits), limits)
    try:
        return elements(flat, dtype).reshape(tensor.shape)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:  # the last by telling of what is deep
        raise _bad(tensor.name, f"its data are not {tensor.datatype}: {error}") from error


def _flat(tensor: Tensor, count: int, limits: Limits) -> list[Any]:
    """Return the elements of a tensor's data, which are flat, or nested as its shape says."""
    try:
        flat, shape = flattened(tensor.data, limits.max_rank)
    except ValueError as error:
        raise _bad(tensor.name, f"its data are not of shape {list(tensor.shape)}: {error}") from error
    except WireError as error:
        raise error.within(tensor.name) from error
    if len(flat) != count or (len(shape) > 1 and count and shape != tensor.shape):
        told = (
            f"its data have {len(flat)} elements (shape {list(shape)}), and its shape {list(tensor.shape)} has {count}"
        )
        raise _bad(tensor.name, f"{told}; give them flat or nested, as many as the shape says")
    return flat


# Text, bytes, and structures as JSON.


def _text_value(tensor: Tensor, dtype: str | None, limits: Limits) -> Value:
    count = _count(tensor, 0, limits)
    flat = unpack_bytes(tensor, count) if tensor.raw else _flat(tensor, count, limits)
    single = count == 1 and len(tensor.shape) < 2  # noqa: PLR2004 - [] and [1]
    content = tensor.parameters.get(CONTENT_TYPE)
    if content == JSON or (dtype in _STRUCTURES and single and content is None):
        if not single:
            raise _bad(tensor.name, f"JSON is BYTES of shape [1], not {list(tensor.shape)}")
        place = f"tensor {tensor.name!r:.80}"
        return read_value(read_json(flat[0], limits, place), place, limits)
    decoded = [_element(tensor.name, each, content, dtype, limits) for each in flat]
    if single:
        return decoded[0]
    return np.array(decoded, object).reshape(tensor.shape).tolist()


def read_json(text: Any, limits: Limits, place: str) -> Any:
    """Return what JSON says. Raises WireError (BAD_INPUT, TOO_LARGE) that begins with the place.

    The parser makes up to 25 bytes of objects of each byte of text that is all empty lists, so those are counted first.
    """
    if not isinstance(text, str | bytes):
        raise WireError(reasons.BAD_INPUT, f"{place}: JSON is a text, not {shown(text)}")
    count = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if count > (most := limits.max_values + limits.max_tensor_bytes // _ROW_BYTES):
        raise too_large(f"{place}: JSON with {count} lists and objects (give large tensors flat, or raw)", most)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(reasons.BAD_INPUT, f"{place}: not JSON: {error!s:.200}") from error


def _element(name: str, element: Any, content: Any, dtype: str | None, limits: Limits) -> str | bytes:
    """Return an element of BYTES as what is declared; else text if it is UTF-8."""
    if not isinstance(element, str | bytes):
        raise _bad(name, f"an element of BYTES is text, not {shown(element)}; put it in quotes")
    if len(element) > limits.max_string_bytes * (1 + (content == BASE64)):
        raise too_large(f"tensor {name!r:.80}: an element", limits.max_string_bytes, "max_string_bytes")
    try:
        if content == BASE64 and isinstance(element, str):
            return base64.b64decode(element, validate=True)
        if dtype == "bytes":
            return element.encode() if isinstance(element, str) else element
        return element if isinstance(element, str) else element.decode()
    except binascii.Error as error:
        raise _bad(name, f"it is to be base64, and is not: {error}") from error
    except UnicodeError as error:
        if isinstance(element, bytes) and dtype != "str":
            return element
        raise _bad(name, f"it is to be text, and is not UTF-8: {error}") from error


def unpack_bytes(tensor: Tensor, count: int) -> list[bytes]:
    """Return the elements of a raw BYTES tensor. Raises WireError(BAD_INPUT) where they are not `count`."""
    data, at = memoryview(cast("bytes", tensor.data)), 0
    found: list[bytes] = []
    if len(data) >= count * _LENGTH.size:
        while at + _LENGTH.size <= len(data) and len(found) < count:
            start = at + _LENGTH.size
            at = start + _LENGTH.unpack_from(data, at)[0]
            found.append(bytes(data[start:at]))
    if len(found) != count or at != len(data):
        told = f"its {len(data)} bytes are not {count} elements, each with its length before it"
        raise _bad(tensor.name, f"{told} (4 bytes, little-endian)")
    return found


def pack_bytes(elements: Iterable[bytes]) -> bytes:
    return b"".join(part for each in elements for part in (_LENGTH.pack(len(each)), each))


# Values to tensors.


def tensor_of(name: str, value: Value, *, raw: bool) -> Tensor:
    """Return the tensor of a value, its data as a list for JSON or in the `raw` encoding.

    Raises WireError: BAD_RESULT for a complex array, BAD_INPUT for one that JSON lacks and that was not asked for raw.
    """
    kind = type(value).__name__
    if kind in SCALARS:
        datatype, number = SCALARS[kind], cast("float", value)
        if raw:
            data: list[Any] | bytes = np.array(number, DTYPE_OF[datatype]).tobytes()
        else:
            data = [number if math.isfinite(number) else NON_FINITE[str(number)]]
        return Tensor(name, datatype, (), data)
    if is_tensor(value):
        return _of_array(name, *named(value), raw=raw)
    if isinstance(value, str):
        return Tensor(name, BYTES, (1,), pack_bytes([value.encode()]) if raw else [value])
    if isinstance(value, bytes):
        if raw:
            return Tensor(name, BYTES, (1,), pack_bytes([value]))
        return Tensor(name, BYTES, (1,), [base64.b64encode(value).decode("ascii")], {CONTENT_TYPE: BASE64})
    text = _dumps(show_value(value))
    return Tensor(name, BYTES, (1,), pack_bytes([text.encode()]) if raw else [text], {CONTENT_TYPE: JSON})


def _of_array(name: str, dtype: str, array: Any, *, raw: bool) -> Tensor:
    datatype = DATATYPE_OF.get(dtype)
    if datatype is None:
        told = f"output {name!r:.80} is {dtype}, for which the Open Inference Protocol has no datatype"
        raise WireError(reasons.BAD_RESULT, f"{told}; ask by /v1, or let the model split it into two arrays")
    if raw:
        return Tensor(name, datatype, array.shape, array.tobytes())
    if datatype in RAW_ONLY:
        told = f"output {name!r:.80} is {datatype}, which JSON does not have"
        raise WireError(reasons.BAD_INPUT, f"{told}; ask for it with the parameter binary_data: true")
    data = array.ravel().tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        data = [each if math.isfinite(each) else NON_FINITE[str(each)] for each in data]
    return Tensor(name, datatype, array.shape, data)


def _bad(name: str, text: str) -> WireError:
    return WireError(reasons.BAD_INPUT, f"tensor {name!r:.80}: {text}")
