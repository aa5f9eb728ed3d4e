"""Tensors on the wire: {dtype, shape, data}, little-endian and in C order, under the name that they are a value of.

numpy arrays travel for every dtype that models use. bfloat16, which numpy lacks, goes through torch: a torch bfloat16
tensor can be encoded; a process that has imported torch gets a torch tensor back, one that has not gets a `Bfloat16`
with the bits, and torch is never imported for its sake.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lineage import reasons
from lineage.errors import WireError
from lineage.limits import too_large

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from lineage.limits import Limits

_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_NAMES = ("bool", *_INTEGERS, "float16", "float32", "float64", "complex64", "complex128")
BFLOAT16: Final = "bfloat16"
DTYPES: Final[dict[str, np.dtype[Any]]] = {name: np.dtype(name).newbyteorder("<") for name in _NAMES}
DTYPE_NAMES: Final[frozenset[str]] = frozenset((*DTYPES, BFLOAT16))
_NAME_OF: Final = {dtype: name for name, dtype in DTYPES.items()}
_BITS: Final = np.dtype("<u2")
# By the bytes that stand on the wire, so that a dtype is found without making a string of it. bfloat16 has its bits.
WIRE_DTYPES: Final[dict[bytes, np.dtype[Any]]] = {name.encode(): dtype for name, dtype in DTYPES.items()}
WIRE_DTYPES[BFLOAT16.encode()] = _BITS
_WIRE_BFLOAT16: Final = BFLOAT16.encode()
_WIRE_BOOL: Final = b"bool"


@dataclass(slots=True, frozen=True, eq=False)
class Bfloat16:
    """A bfloat16 tensor in a process without torch: its bits, as unsigned 16-bit integers of the tensor's shape."""

    bits: np.ndarray[Any, np.dtype[np.uint16]]

    def float32(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        return (self.bits.astype(np.uint32) << 16).view(np.float32)

    def torch(self) -> torch.Tensor:
        """The same tensor as torch's (a copy, as torch knows no read-only tensors). Imports torch."""
        import torch  # noqa: PLC0415  a process that has no use for torch must not pay for it

        return torch.from_numpy(self.bits.astype(np.int16)).view(torch.bfloat16)


def is_tensor(value: Any) -> bool:
    if isinstance(value, (np.ndarray, Bfloat16)):
        return True
    # None too where another thread is in the middle of importing torch: then nobody holds a tensor yet.
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(value, kind)


def pack(value: Any, limits: Limits) -> dict[str, Any]:
    """The Avro record of a tensor. Raises WireError for a dtype that does not travel or a tensor over the limits."""
    name, array = named(value)
    size = array.nbytes or _spread(array.shape) * array.itemsize
    if size > limits.max_tensor_bytes:
        raise too_large(f"a tensor of shape {array.shape}", limits.max_tensor_bytes, "max_tensor_bytes")
    if array.ndim > limits.max_rank:
        raise too_large(f"a tensor of rank {array.ndim}", limits.max_rank, "max_rank")
    return {"dtype": name, "shape": array.shape, "data": array.tobytes()}


def named(value: Any) -> tuple[str, np.ndarray[Any, Any]]:
    """Return a tensor's dtype and little-endian array (of bfloat16 its bits). Raises WireError for others."""
    if not isinstance(value, np.ndarray):
        return _bfloat16(value)
    found = _NAME_OF.get(value.dtype)
    if found is None or isinstance(value, np.ma.MaskedArray):
        return _little_endian(value)
    return found, value


def view(message: bytes, at: int, size: int, dtype: bytes, shape: list[int], limits: Limits) -> Any:
    """The tensor whose data are `message[at : at + size]`: a read-only view, no copy (but torch's bfloat16).

    The view keeps the whole message alive. Raises WireError where dtype, shape and size do not fit one another or a
    limit is passed, before anything is allocated.
    """
    element = WIRE_DTYPES.get(dtype)
    if element is None:
        raise WireError(reasons.BAD_INPUT, f"a tensor has the unknown dtype {dtype[:32]!r}")
    if len(shape) > limits.max_rank:
        raise too_large(f"a tensor of rank {len(shape)}", limits.max_rank, "max_rank")
    if shape and min(shape) < 0:
        raise WireError(reasons.CORRUPT, f"a tensor has a negative dimension: {shape}")
    if _spread(shape) * element.itemsize > limits.max_tensor_bytes:
        raise too_large(f"a tensor of shape {shape}", limits.max_tensor_bytes, "max_tensor_bytes")
    if math.prod(shape) * element.itemsize != size:
        raise WireError(reasons.CORRUPT, f"a tensor of {dtype.decode()} and shape {shape} has {size} bytes of data")
    array = np.ndarray(shape, element, message, at)
    if dtype == _WIRE_BOOL and size and array.view(np.uint8).max() > 1:
        raise WireError(reasons.CORRUPT, "a bool tensor has elements that are neither 0 nor 1")
    if dtype == _WIRE_BFLOAT16:
        bits = Bfloat16(array)
        return bits if sys.modules.get("torch") is None else bits.torch()
    return array


def _spread(shape: Iterable[int]) -> int:
    """The number of elements if no dimension were 0: numpy computes with it even where there are none."""
    return math.prod([length or 1 for length in shape])


def _little_endian(array: np.ndarray[Any, Any]) -> tuple[str, np.ndarray[Any, Any]]:
    """Name and little-endian copy of an array in the other byte order; an error for what has no place on the wire."""
    if isinstance(array, np.ma.MaskedArray):
        raise WireError(reasons.NOT_ENCODABLE, "a masked array cannot travel: fill it, or send the mask beside it")
    dtype = array.dtype.newbyteorder("<") if array.dtype.kind in "biufc" else array.dtype
    name = _NAME_OF.get(dtype)
    if name is None:
        raise WireError(
            reasons.NOT_ENCODABLE, f"an array of dtype {array.dtype} cannot travel; use one of {', '.join(_NAMES)}"
        )
    return name, array.astype(dtype)


def _bfloat16(value: Any) -> tuple[str, np.ndarray[Any, Any]]:
    """Name and array (bits, for bfloat16) of a `Bfloat16` or a torch tensor of any device and layout of memory."""
    if isinstance(value, Bfloat16):
        return BFLOAT16, np.asarray(value.bits, _BITS)
    torch = sys.modules["torch"]
    try:
        tensor = value.detach().cpu().resolve_conj().resolve_neg()
        if tensor.dtype == torch.bfloat16:
            return BFLOAT16, tensor.contiguous().view(torch.int16).numpy().view(_BITS)
        array: np.ndarray[Any, Any] = tensor.numpy()
    except (TypeError, RuntimeError) as error:
        raise WireError(reasons.NOT_ENCODABLE, f"a torch tensor of {value.dtype} cannot travel: {error}") from error
    found = _NAME_OF.get(array.dtype)
    return (found, array) if found is not None else _little_endian(array)
