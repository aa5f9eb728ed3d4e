"""What the queries of a load ask: inputs by index, from a user's function or after the pipeline's own signature."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from spillway.lineage.errors import UsageError
from spillway.lineage.values.tensors import BFLOAT16, Bfloat16

if TYPE_CHECKING:
    from spillway.topology.spec import InputSpec, PipelineSpec

Payload = Callable[[int, np.random.Generator], Mapping[str, Any]]
"""Makes the inputs of the query with this index (from 0). The generator is seeded, and the same for all queries."""

_ANY_SIZE = 8  # of a dimension that may have any
_VALUES: dict[str, Any] = {"str": "spillway", "bytes": b"spillway", "int": 1, "float": 1.0, "list": [], "dict": {}}


def find_payload(name: str) -> Payload:
    """Find the function that `module:function` names. Raises `UsageError` saying what is wrong with the name."""
    module_name, colon, function_name = name.partition(":")
    if not colon or not module_name or not function_name:
        raise UsageError(f"{name!r} is not a payload function: write module:function")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UsageError(f"cannot import the module of payload function {name!r}: {error}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UsageError(f"module {module_name} has no function {function_name!r}")
    return cast("Payload", function)  # what it returns is checked when it is sent


def signature_payload(spec: PipelineSpec) -> Payload:
    """Inputs that the root stages take by their signature; where none has one, just the query's index."""
    wanted: dict[str, InputSpec] = {}
    for stage in spec.stages:
        if not stage.after:
            wanted |= stage.inputs or {}

    def make(index: int, rng: np.random.Generator) -> Mapping[str, Any]:
        if not wanted:
            return {"index": index}
        return {name: example_of(spec, rng) for name, spec in wanted.items()}

    return make


def example_of(wanted: InputSpec, rng: np.random.Generator) -> Any:
    """Make a value that an input declared so takes; a size that is left open is 8."""
    if wanted.dtype in _VALUES:
        return _VALUES[wanted.dtype]
    shape = tuple(size if isinstance(size, int) and size >= 0 else _ANY_SIZE for size in wanted.shape or ())
    numbers = rng.random(shape)
    if wanted.dtype == BFLOAT16:
        return Bfloat16((numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16))
    dtype = np.dtype(wanted.dtype or "float32")
    if dtype.kind in "iu":
        return np.asarray(numbers * 100).astype(dtype)
    return np.asarray(numbers > 0.5 if dtype.kind == "b" else numbers).astype(dtype)  # noqa: PLR2004 - half and half
