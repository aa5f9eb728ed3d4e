"""Tensors of a state as bytes in memory, and back: numpy's, torch's, and what speaks DLPack. torch is never imported.

A leaf is seen as a numpy array without a copy where its memory allows it (a tensor on a GPU is copied to the host; one
that is not contiguous is copied when its bytes are taken). bfloat16, which numpy lacks, is seen as its bits. What was a
torch tensor becomes one again in a process that has imported torch, else a numpy array (`Bfloat16` for bfloat16); where
torch is not even installed it is refused, as whoever reads it would take it for an array of numpy's from then on.
`requires_grad`, the device and the layout in memory do not travel.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from typing import Any, Final

import numpy as np

from spillway.checkpoint.small_values import UnfitError
from spillway.lineage.errors import NO_TORCH, CheckpointError
from spillway.lineage.replication import NUMPY, SCALAR, TORCH, Entry
from spillway.lineage.values.plain import BFLOAT16, BITS, DTYPES, NAME_OF, Bfloat16, is_torch

Array = np.ndarray[Any, np.dtype[Any]]
MAX_RANK: Final = 16


def is_array(value: Any) -> bool:
    if isinstance(value, (np.ndarray, np.generic, Bfloat16)):
        return True
    return is_torch(value) or hasattr(type(value), "__dlpack__")


def seen(value: Any) -> tuple[str, str, Array]:
    """Kind, dtype's name and the numpy array that shows a leaf. Raises UnfitError, which says what to do."""
    if is_torch(value):
        return TORCH, *_of_torch(value)
    if isinstance(value, Bfloat16):
        return NUMPY, BFLOAT16, np.asarray(value.bits, BITS)
    if isinstance(value, np.ma.MaskedArray):
        raise UnfitError("a masked array cannot be encoded: fill it, or keep the mask beside it")
    if not isinstance(value, (np.ndarray, np.generic)):
        try:
            value = np.from_dlpack(value)
        except (BufferError, TypeError, RuntimeError, ValueError) as error:
            raise UnfitError(
                f"it cannot be read through DLPack ({str(error)[:100]}): copy it into a numpy array"
            ) from error
    return SCALAR if isinstance(value, np.generic) else NUMPY, *_of_numpy(np.asarray(value))


def flat(array: Array) -> Array:
    """The bytes of an array in C order; a copy only where it is not contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def itemsize(dtype: str) -> int:
    return (BITS if dtype == BFLOAT16 else DTYPES[dtype]).itemsize


def nbytes(entry: Entry) -> int:
    return math.prod(entry.shape) * itemsize(entry.dtype) if entry.dtype else 0


def empty(entry: Entry) -> Array:
    """Memory for a tensor's data: of its shape, of its bits where numpy lacks the dtype."""
    try:
        return np.empty(entry.shape, BITS if entry.dtype == BFLOAT16 else DTYPES[entry.dtype])
    except (MemoryError, ValueError) as error:
        raise CheckpointError(
            f"not enough memory for {entry.name!r}, {entry.dtype} of shape {entry.shape}: {error}"
        ) from error


def given(entry: Entry, array: Array) -> Any:
    """The tensor that an array of `empty` holds, as what it was: no copy. Raises CheckpointError without torch."""
    torch = sys.modules.get("torch") if entry.kind == TORCH else None
    if entry.kind == SCALAR:
        return array[()]
    if torch is None:
        if entry.kind == TORCH and importlib.util.find_spec("torch") is None:
            raise CheckpointError(f"the state's {entry.name!r} is a torch tensor: {NO_TORCH}")
        return Bfloat16(array) if entry.dtype == BFLOAT16 else array
    if entry.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _of_torch(tensor: Any) -> tuple[str, Array]:
    torch = sys.modules["torch"]
    try:
        plain = tensor.detach().cpu().resolve_conj().resolve_neg()
        if plain.dtype == torch.bfloat16:
            return BFLOAT16, plain.view(torch.int16).numpy().view(BITS)
        array: Array = plain.numpy()
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise UnfitError(
            f"a torch tensor of {tensor.dtype} and layout {tensor.layout} cannot be encoded ({error})"
        ) from error
    return _of_numpy(array)


def _of_numpy(array: Array) -> tuple[str, Array]:
    if array.ndim > MAX_RANK:
        raise UnfitError(f"it has {array.ndim} dimensions, over the limit of {MAX_RANK}: reshape it")
    name = NAME_OF.get(array.dtype)
    if name is not None:
        return name, array
    little = array.dtype.newbyteorder("<") if array.dtype.kind in "biufc" else array.dtype
    name = NAME_OF.get(little)
    if name is None:
        raise UnfitError(f"an array of dtype {array.dtype} cannot be encoded: use one of {', '.join(DTYPES)}")
    return name, array.astype(little)
