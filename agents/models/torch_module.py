"""A torch.nn.Module as a model: batches in, one result per query out. Imported only where a model is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agents.models.inputs import Inputs


class TorchModel:
    """Calls `module(**inputs)` in inference mode with each input stacked over the batch, and splits what it returns.

    The module returns a tensor (told as `output`) or a mapping of names to tensors; the first dimension is the batch.
    Queries whose inputs differ in names, shapes or dtypes are run in one call per kind. A module with a `predict` of
    its own is called by that instead, as any other model.
    """

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
        stacked = {name: torch.stack([_tensor(query[name]) for query in batch]).to(self._device) for name in batch[0]}
        output = self._module(**stacked)
        named: Mapping[str, torch.Tensor] = output if isinstance(output, dict) else {"output": output}
        columns = {name: _rows(tensor.detach().cpu(), len(batch), name) for name, tensor in named.items()}
        return [{name: rows[index] for name, rows in columns.items()} for index in range(len(batch))]


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
