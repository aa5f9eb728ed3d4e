"""A torch.nn.Module, or a file of torch's, as a model. Imported only where a model is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from spillway.agents.models.inputs import check_count, taken
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from spillway.agents.models.inputs import Inputs


class TorchModel:
    """Calls `module(**inputs)` in inference mode with each input stacked over the batch, and splits what it returns.

    The module returns a tensor (told as `output`) or a mapping of names to tensors; the first dimension is the batch.
    Queries whose inputs differ in names, shapes or dtypes are run in one call per kind. A module with a `predict` of
    its own is called by that instead, as any other model.
    """

    _alone: ClassVar[str] = "output"  # what a tensor without a name is told as

    def __init__(self, module: torch.nn.Module, device: str = "cpu") -> None:
        self._module = module.to(device).eval()
        self._device = device
        self.version = str(getattr(module, "version", ""))
        self.input_signature = getattr(module, "input_signature", None)
        self.example = getattr(module, "example", None)

    def predict(self, batch: list[Inputs]) -> list[dict[str, Any]]:
        own = getattr(self._module, "predict", None)
        with torch.inference_mode():
            if own is not None:
                return own(batch)  # type: ignore[no-any-return]
            results: list[dict[str, Any]] = [{} for _ in batch]
            for indices in _alike(batch):
                outputs = self._forward([batch[index] for index in indices])
                for index, output in zip(indices, outputs, strict=True):
                    results[index] = output
        return results

    def _forward(self, batch: list[Inputs]) -> list[dict[str, Any]]:
        output = self._call(batch)
        named: Mapping[str, torch.Tensor] = output if isinstance(output, dict) else {self._alone: output}
        columns = {name: _rows(tensor.detach().cpu(), len(batch), name) for name, tensor in named.items()}
        return [{name: rows[index] for name, rows in columns.items()} for index in range(len(batch))]

    def _call(self, batch: list[Inputs]) -> Any:
        return self._module(**{name: self._stacked(batch, name) for name in batch[0]})

    def _stacked(self, batch: list[Inputs], name: str) -> torch.Tensor:
        return torch.stack([_tensor(query[name]) for query in batch]).to(self._device)


class TorchFile(TorchModel):
    """A TorchScript archive, or a program that torch.export has saved (.pt2): its inputs are given by position.

    They are found by their names in its signature, a single one by any name. A tensor that it returns is told as `y`.
    """

    _alone = "y"
    deterministic = True

    def __init__(self, file: Path, device: str = "cpu") -> None:
        self._device = device
        self._fixed: int | None = None
        self.version, self.example, self.input_signature = "", None, None
        if file.suffix == ".pt2":
            self._read_program(torch.export.load(file))
            return
        archive: Any = torch.jit.load(str(file), map_location=device)  # type: ignore[no-untyped-call]
        self._module = archive.eval()
        self._names = [each.name for each in archive.forward.schema.arguments[1:] if not each.has_default_value()]

    def _read_program(self, program: torch.export.ExportedProgram) -> None:
        self._names = [str(name) for name in program.graph_signature.user_inputs]
        values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
        inputs: dict[str, Any] = {name: values.get(name) for name in self._names}
        args, kwargs = program.call_spec.in_spec.children()
        if kwargs.num_leaves or any(each.num_children for each in args.children()):
            raise ModelError("the program takes nested or keyword inputs; export it with tensors by position")
        odd = [name for name, value in inputs.items() if not isinstance(value, torch.Tensor) or not value.ndim]
        if odd:
            raise ModelError(f"its input {odd[0]!r} is not a tensor whose first dimension is the batch")
        sizes = {name: [each if isinstance(each, int) else None for each in inputs[name].shape] for name in inputs}
        self._fixed = next((shape[0] for shape in sizes.values() if shape[0] is not None), None)
        self.input_signature = {
            name: {"dtype": str(inputs[name].dtype).removeprefix("torch."), "shape": sizes[name][1:]} for name in inputs
        }
        if self._device != "cpu":
            from torch.export.passes import move_to_device_pass  # noqa: PLC0415 - a second's import

            program = move_to_device_pass(program, self._device)
        self._module = program.module()

    def _call(self, batch: list[Inputs]) -> Any:
        check_count(self._fixed, len(batch))
        output = self._module(*(self._stacked(batch, name) for name in taken(batch[0], self._names)))
        if not isinstance(output, dict | torch.Tensor):
            raise TypeError(f"the file returns a {type(output).__name__}, not a tensor or a dict of tensors")
        return output


def _rows(tensor: torch.Tensor, count: int, name: str) -> list[Any]:
    if tensor.ndim == 0 or tensor.shape[0] != count:
        raise ValueError(f"output {name!r} has shape {tuple(tensor.shape)}; its first dimension must be {count}")
    if tensor.dtype == torch.bfloat16:
        return list(tensor)  # numpy has no such dtype; the codec takes it as it is
    return list(tensor.numpy())


def _tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    array = np.asarray(value)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _alike(batch: list[Inputs]) -> list[list[int]]:
    kinds: dict[tuple[Any, ...], list[int]] = {}
    for index, query in enumerate(batch):
        kind = tuple(
            (name, np.shape(value), str(getattr(value, "dtype", type(value)))) for name, value in query.items()
        )
        kinds.setdefault(tuple(sorted(kind)), []).append(index)
    return list(kinds.values())
