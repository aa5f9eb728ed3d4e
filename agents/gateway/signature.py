"""The signature of a pipeline: what its clients send and get, as its file declares it.

The Open Inference Protocol (v2) knows neither text nor structures, nor a tensor of any dtype. So in a model's metadata

- text and bytes are BYTES [1], a list or a mapping BYTES [1] of JSON (`parameters: {content_type: json}`);
- numbers and booleans have the shape [], and no shape has a batch dimension: one request is one query;
- a dimension that may be of any size is -1; a tensor whose shape is not declared has [-1], whatever its rank;
- what has no dtype declared says so (`parameters: {dtype: any}`): FP32 where a shape is declared, else BYTES [-1];
- a complex tensor is left out, as the protocol has no datatype for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.gateway.tensors import BYTES, DATATYPE_OF, JSON, SCALARS
from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.topology import names
from spillway.topology.spec import InputSpec, PipelineSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PLATFORM: Final = "spillway"
SERVER: Final[dict[str, Any]] = {
    "name": "spillway",
    "version": version("spillway"),
    "extensions": ("binary_tensor_data", "model_stream_infer"),
}
"""What a gateway says of itself."""
ANY: Final = -1
_TEXTS: Final = ("str", "bytes")
_STRUCTURES: Final = ("list", "dict")


@dataclass(frozen=True, slots=True)
class Signature:
    """Named inputs and outputs of a pipeline; a None in one of them stands for anything."""

    pipeline: str
    inputs: Mapping[str, InputSpec]
    outputs: Mapping[str, InputSpec] | None
    """None where the file has no section `outputs`: they may be any."""
    needs: bool
    """Whether a query may say what it needs of variants (`spillway.topology.variants.needs`)."""

    @classmethod
    def of(cls, spec: PipelineSpec) -> Signature:
        inputs: dict[str, InputSpec] = {}
        for stage in (stage for stage in spec.stages if not stage.after):
            for name, declared in (stage.inputs or {}).items():
                inputs[name] = _common(inputs.get(name, declared), declared)
        needs = any(stage.variants is not None for stage in spec.stages)
        return cls(spec.name, inputs, spec.outputs, needs)

    def metadata(self, version: str) -> dict[str, Any]:
        """Return the model metadata of the Open Inference Protocol; it has no outputs where none are declared."""
        return {
            "name": self.pipeline,
            "versions": [version],
            "platform": PLATFORM,
            "inputs": _described(self.inputs),
            "outputs": _described(self.outputs or {}),
        }

    def check_outputs(self, wanted: Iterable[str]) -> None:
        """Raise WireError(BAD_INPUT) for an output that the file does not declare, where it declares any."""
        unknown = [] if self.outputs is None else [name for name in wanted if name not in self.outputs]
        if unknown:
            hint = names.meant(unknown[0][:80], list(self.outputs or ()))
            told = f"pipeline {self.pipeline!r} has no output {unknown[0]!r:.80}; {hint}"
            raise WireError(reasons.BAD_INPUT, told)


def _common(one: InputSpec, other: InputSpec) -> InputSpec:
    """What fits both of two roots' declarations: what they disagree in is any."""
    dtype = one.dtype if one.dtype == other.dtype else None
    return InputSpec(dtype=dtype, shape=one.shape if one.shape == other.shape else None)


def _described(declared: Mapping[str, InputSpec]) -> list[dict[str, Any]]:
    return [{"name": name, **tensor} for name, spec in declared.items() if (tensor := tensor_metadata(spec))]


def tensor_metadata(spec: InputSpec) -> dict[str, Any]:
    """Return datatype and shape, and parameters where there is more to say; nothing for a complex tensor."""
    shape = None if spec.shape is None else [size if type(size) is int else ANY for size in spec.shape]
    if spec.dtype is None:
        told = {"datatype": BYTES, "shape": [ANY]} if shape is None else {"datatype": "FP32", "shape": shape}
        return {**told, "parameters": {"dtype": "any"}}
    if spec.dtype in _TEXTS:
        return {"datatype": BYTES, "shape": [1]}
    if spec.dtype in _STRUCTURES:
        return {"datatype": BYTES, "shape": [1], "parameters": {"content_type": JSON}}
    if spec.dtype in SCALARS and not shape:
        return {"datatype": SCALARS[spec.dtype], "shape": []}
    datatype = DATATYPE_OF.get(spec.dtype)
    return {} if datatype is None else {"datatype": datatype, "shape": [ANY] if shape is None else shape}
