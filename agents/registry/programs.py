"""Variants of a torch module: programs of torch.export in three precisions, and the same in ONNX. Imports torch."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from spillway.agents.registry.archive import check_archive, stripped
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_LARGEST: Final = 4_096  # queries of a batch
_TRACED: Final = 2  # a batch of one would be taken for a constant
_STEPS: Final = 127


class Whole(nn.Module):
    """The module as it answers: inputs by position, in `inner` where that is no float32, and float32 scores."""

    def __init__(self, module: nn.Module, inner: torch.dtype | None = None) -> None:
        super().__init__()
        self.module = module
        self._inner = inner

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        given = [each.to(self._inner) if self._inner and each.is_floating_point() else each for each in inputs]
        made: torch.Tensor = self.module(*given)
        return made.float()


class Int8Linear(nn.Module):
    """A linear layer whose product is of int8: weights by output, inputs by query as they come (dynamic)."""

    weight: torch.Tensor
    scale: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight = layer.weight.detach().float()
        scale = weight.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / _STEPS
        self.register_buffer("weight", torch.round(weight / scale[:, None]).to(torch.int8).t().contiguous())
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach().float())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        step = flat.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / _STEPS
        whole = torch._int_mm(torch.round(flat / step).to(torch.int8), self.weight)  # noqa: SLF001 - torch's only one
        made = whole.float() * step * self.scale
        if self.bias is not None:
            made = made + self.bias
        return made.reshape(*x.shape[:-1], -1)


def in_int8(module: nn.Module) -> nn.Module:
    """A copy whose linear layers are `Int8Linear`; the rest stays. Raises ModelError where there is none."""
    if isinstance(module, nn.Linear):
        return Int8Linear(module)
    copy = deepcopy(module)
    places = [
        (parent, name)
        for parent in copy.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear
    ]
    if not places:
        raise ModelError("it has no torch.nn.Linear, and only those are converted to int8")
    for parent, name in places:
        setattr(parent, name, Int8Linear(getattr(parent, name)))
    return copy


def build(module: nn.Module, kind: str, inputs: Mapping[str, NDArray[Any]], file: Path) -> None:
    """Write a variant to `file`; `kind`: eager, bf16, int8 or onnx. Raises ModelError that says why it cannot be."""
    whole = {
        "eager": lambda: Whole(deepcopy(module)),
        "onnx": lambda: Whole(deepcopy(module)),
        "bf16": lambda: Whole(deepcopy(module).to(torch.bfloat16), torch.bfloat16),
        "int8": lambda: Whole(in_int8(module)),
    }[kind]()
    whole = whole.cpu().eval().requires_grad_(False)  # noqa: FBT003 - torch's signature
    given = tuple(torch.from_numpy(x[:_TRACED].copy()) for x in inputs.values())
    with torch.no_grad(), _quiet():
        made = whole(*given)
        if made.ndim != 2 or len(made) != _TRACED:  # noqa: PLR2004 - queries and classes
            raise ModelError(
                f"it must return a score for each class of each query, not a tensor of {tuple(made.shape)}"
            )
        if kind == "onnx":
            _write_onnx(whole, given, list(inputs), file)
        else:
            _write_program(whole, given, file)


def _write_program(whole: nn.Module, given: tuple[torch.Tensor, ...], file: Path) -> None:
    batch = torch.export.Dim("batch", min=1, max=_LARGEST)
    program = torch.export.export(whole, given, dynamic_shapes=(tuple({0: batch} for _ in given),))
    raw = file.with_suffix(".raw.pt2")
    torch.export.save(program, raw)
    try:
        stripped(raw, file)
    finally:
        raw.unlink()
    check_archive(file)


def _write_onnx(whole: nn.Module, given: tuple[torch.Tensor, ...], names: list[str], file: Path) -> None:
    torch.onnx.export(
        whole,
        given,
        str(file),
        dynamo=False,  # the other one needs a package more
        input_names=names,
        output_names=["scores"],
        dynamic_axes={name: {0: "batch"} for name in [*names, "scores"]},
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What torch says of its own exporters is not for who registers a model."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
