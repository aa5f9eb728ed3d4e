"""Training a parity model (ParM, sections 3.3 and 4.1). Imports torch: imported where there is something to train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from spillway.agents.coding.data import encoded, groups
from spillway.agents.coding.parity import renamed
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from spillway.agents.coding.codes import Arrays, Code


@dataclass(frozen=True, slots=True)
class Effort:
    """How long and how to train; the paper's settings are the defaults."""

    epochs: int = 200
    batch: int = 64
    rate: float = 1e-3
    decay: float = 1e-5
    seed: int = 0


def fit(
    module: nn.Module,
    inputs: Arrays,
    outputs: Arrays,
    code: Code,
    k: int,
    row: int,
    effort: Effort,
    progress: Callable[[int], None] = lambda _epoch: None,
) -> None:
    """Train a module to answer a row's parity queries with the weighted sum of the deployed model's `outputs`.

    Groups of k are drawn anew each epoch, every query once at each place. The loss is the mean squared error. The
    module is initialised first, whatever its weights. Raises ModelError for a module that cannot be trained.
    """
    torch.manual_seed(effort.seed)
    initialise(module)
    chance = np.random.default_rng(effort.seed)
    optimizer = torch.optim.Adam(module.requires_grad_().parameters(), lr=effort.rate, weight_decay=effort.decay)
    module.train()
    count = len(next(iter(inputs.values())))
    for epoch in range(effort.epochs):
        members = groups(count, k, chance)
        for start in range(0, count, effort.batch):
            some = members[start : start + effort.batch]
            given = {name: torch.from_numpy(value) for name, value in encoded(code, row, inputs, some).items()}
            loss = _loss(module(**given), targets(outputs, code, row, some))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        progress(epoch + 1)
    module.eval()


def targets(outputs: Arrays, code: Code, row: int, members: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """The sum of (place + 1)^row F(X), or by the code's own `weight(place, row)`, for each group of `members`."""
    weight: Callable[[int, int], float] = getattr(code, "weight", lambda place, row: float((place + 1) ** row))
    weights = np.array([weight(place, row) for place in range(members.shape[1])])
    return {n: np.einsum("gk...,k->g...", value[members], weights.astype(value.dtype)) for n, value in outputs.items()}


def _loss(answer: Any, wanted: Arrays) -> torch.Tensor:
    told = renamed(answer if isinstance(answer, dict) else {"output": answer}, wanted)
    if told is None:
        raise ModelError(f"the parity model answers {', '.join(answer)}; the deployed model {', '.join(wanted)}")
    losses = []
    for name, value in wanted.items():
        if told[name].shape != value.shape:
            raise ModelError(
                f"the parity model's output {name!r} has shape {list(told[name].shape[1:])}; the deployed model's has "
                f"{list(value.shape[1:])}"
            )
        losses.append(nn.functional.mse_loss(told[name], torch.from_numpy(value)))
    loss = torch.stack(losses).sum()
    if not loss.requires_grad:
        raise ModelError("the parity model's forward computes without gradients; give one that can be trained")
    return loss


def initialise(module: nn.Module) -> None:
    """Begin with convolutional and dense layers uniform after Xavier, and biases 0; others as they are constructed.

    The paper draws dense layers from N(0, 0.01). The MLP of examples/parm then needs more than twice the epochs.
    """
    for layer in module.modules():
        if callable(getattr(layer, "reset_parameters", None)):
            layer.reset_parameters()  # type: ignore[operator] # a layer's own
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
