"""What inputs a stage takes: names, dtypes and shapes, as its spec says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lineage import reasons
from lineage.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Signature:
    """Checks a query's inputs; dimensions told as None, -1 or a name may be of any size."""

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        """`inputs` maps names to objects (or mappings) with `dtype` and `shape`; either may be None for any."""
        self._inputs = {name: (_told(one, "dtype"), _shape(_told(one, "shape"))) for name, one in inputs.items()}

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raise WireError(BAD_INPUT) that names the first input that does not fit; more inputs may be there."""
        for name, (dtype, shape) in self._inputs.items():
            if name not in inputs:
                raise WireError(reasons.BAD_INPUT, f"input {name!r} is missing")
            value = inputs[name]
            found_dtype, found_shape = describe(value)
            if dtype is not None and dtype != found_dtype:
                raise WireError(reasons.BAD_INPUT, f"input {name!r} is {found_dtype}, not {dtype}")
            if shape is not None and not _fits(shape, found_shape):
                raise WireError(reasons.BAD_INPUT, f"input {name!r} has shape {list(found_shape)}, not {list(shape)}")


def describe(value: Any) -> tuple[str, tuple[int, ...]]:
    """Name a value's dtype and shape; of what is no tensor, its type and no dimensions."""
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return type(value).__name__, ()
    return str(dtype).removeprefix("torch."), tuple(value.shape)


def _fits(shape: tuple[int | None, ...], found: tuple[int, ...]) -> bool:
    return len(shape) == len(found) and all(want in (None, have) for want, have in zip(shape, found, strict=True))


def _told(one: Any, field: str) -> Any:
    return one.get(field) if isinstance(one, dict) else getattr(one, field, None)


def _shape(told: Any) -> tuple[int | None, ...] | None:
    if told is None:
        return None
    return tuple(size if isinstance(size, int) and size >= 0 else None for size in told)
