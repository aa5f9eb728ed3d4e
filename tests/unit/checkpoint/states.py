"""How states are compared."""

import numpy as np


def same(one, other):  # noqa: PLR0911  one for each type
    """Deep equality, bit for bit, with types, dtypes and orders of keys the same."""
    if type(one).__module__ == "torch":
        alike = type(other) is type(one) and one.dtype == other.dtype and one.shape == other.shape
        return alike and bits(one) == bits(other)
    if isinstance(one, np.ndarray):
        alike = isinstance(other, np.ndarray) and one.dtype == other.dtype and one.shape == other.shape
        return alike and one.tobytes() == other.tobytes()
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return np.float64(one).tobytes() == np.float64(other).tobytes() or np.isnan([one, other]).all()
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def bits(tensor):
    import torch  # not before there is a tensor

    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
