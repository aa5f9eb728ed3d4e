"""Tensors on the wire: {dtype, shape, data}, little-endian and in C order, under the name that they are a value of.

numpy arrays travel for every dtype that models use. bfloat16, which numpy lacks, goes through torch: a torch bfloat16
tensor can be encoded; a process that has imported torch gets a torch tensor back, one that has not gets a `Bfloat16`
with the bits, and torch is never imported for its sake.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.limits import too_large
from spillway.lineage.values import plain
from spillway.lineage.values.plain import BFLOAT16, BITS, DTYPES, NAME_OF, Bfloat16, PlainError, is_tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spillway.lineage.limits import Limits

__all__ = ["BFLOAT16", "DTYPES", "DTYPE_NAMES", "WIRE_DTYPES", "Bfloat16", "is_tensor", "named", "pack", "view"]

DTYPE_NAMES: Final[frozenset[str]] = frozenset((*DTYPES, BFLOAT16))
# By the bytes that stand on the wire, so that a dtype is found without making a string of it. bfloat16 has its bits.
WIRE_DTYPES: Final[dict[bytes, np.dtype[Any]]] = {name.encode(): dtype for name, dtype in DTYPES.items()}
WIRE_DTYPES[BFLOAT16.encode()] = BITS
_WIRE_BFLOAT16: Final = BFLOAT16.encode()
_WIRE_BOOL: Final = b"bool"


def pack(value: Any, limits: Limits) -> dict[str, Any]:
    """The Avro record of a tensor. Raises WireError for a dtype that does not travel or a tensor over the limits."""
    found = NAME_OF.get(value.dtype) if type(value) is np.ndarray else None
    name, array = named(value) if found is None else (found, value)
    size = array.nbytes or _spread(array.shape) * array.itemsize
    if size > limits.max_tensor_bytes:
        raise too_large(f"a tensor of shape {array.shape}", limits.max_tensor_bytes, "max_tensor_bytes")
    if array.ndim > limits.max_rank:
        raise too_large(f"a tensor of rank {array.ndim}", limits.max_rank, "max_rank")
    return {"dtype": name, "shape": array.shape, "data": array.tobytes()}


def named(value: Any) -> tuple[str, np.ndarray[Any, Any]]:
    """Return a tensor's dtype and little-endian array (of bfloat16 its bits). Raises WireError for others."""
    try:
        return plain.tensor(value)
    except PlainError as error:
        raise WireError(reasons.NOT_ENCODABLE, str(error)) from error


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
