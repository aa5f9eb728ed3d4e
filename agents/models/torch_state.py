"""What the adapters of torch modules share: beginning alike, and taking a state over from elsewhere."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lineage.errors import ModelError
from lineage.values.tensors import Bfloat16

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from torch's generator as from a new one; what others draw from it goes on as if nothing had been."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def as_tensor(value: Any) -> Any:
    """A tensor or an array as a tensor of its own memory; a plain value as it is."""
    if isinstance(value, Bfloat16):
        return value.torch()
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def fill(owner: str, own: Mapping[str, torch.Tensor], state: Mapping[str, Any]) -> None:
    """Copy the values of `state` into the tensors of the same names. Raises ModelError where names or shapes differ."""
    for name, tensor in own.items():
        if name not in state:
            raise ModelError(f"{owner}: the state has no {name!r}; it was made by another model, or another version")
        value = as_tensor(state[name])
        if value.shape != tensor.shape or value.dtype != tensor.dtype:
            raise ModelError(
                f"{owner}: {name!r} is {value.dtype} of {tuple(value.shape)} in the state and {tensor.dtype} of "
                f"{tuple(tensor.shape)} in the model; it was made by another model, or another version"
            )
        with torch.no_grad():
            tensor.copy_(value)
