"""Training a parity model (ParM, sections 3.3 and 4.1). Imports torch: imported where there is something to train."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import nn

from spillway.agents.coding.data import encoded, groups
from spillway.agents.coding.parity import renamed
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from spillway.agents.coding.codes import Arrays, Code


_HELD: Final = 10  # one query in so many is kept to validate with
_WARM_UP: Final = 100  # steps
_PATIENCE: Final = 5  # training ends after a share of the epochs, one in so many, without a better validation


@dataclass(frozen=True, slots=True)
class Effort:
    """How long and how to train; epochs, batch and decay are the paper's, which trains at 1e-3 throughout."""

    epochs: int = 200
    batch: int = 64
    rate: float = 3e-3
    """The highest; it rises over the first steps, and falls to 0 as a cosine."""
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
    *,
    begin: Mapping[str, torch.Tensor] | None = None,
    scores: bool = False,
) -> int:
    """Train a module to answer a row's parity queries as the code decodes them; returns after which epoch it was best.

    Groups of k are drawn anew each epoch, every query once at each place. The loss is the squared error of the weighted
    sum of the deployed model's `outputs`; with `scores`, where the first output is one number a class, also how far the
    classes' shares in each decoded answer are from those in the deployed model's. A tenth of the queries is kept aside:
    the weights that were best on them stay, and training stops when they have not been bettered for long.
    `begin`: the weights to begin with, the deployed model's say; None: initialised, whatever the module's are.
    Raises ModelError for a module that cannot be trained.
    """
    torch.manual_seed(effort.seed)
    if begin is None:
        initialise(module)
    else:
        module.load_state_dict(begin)
    chance = np.random.default_rng(effort.seed)
    count = len(next(iter(inputs.values())))
    order = chance.permutation(count)
    held = count // _HELD if count // _HELD >= k else 0
    kept, training = order[:held], order[held:]
    loss = _Loss(module, inputs, outputs, code, row, scores=scores)
    validation = kept[groups(held, k, chance)] if held else None
    optimizer = torch.optim.Adam(module.requires_grad_().parameters(), lr=effort.rate, weight_decay=effort.decay)
    steps = effort.epochs * -(-len(training) // effort.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(_share_of_rate, steps))
    best, best_epoch, best_weights = math.inf, 0, module.state_dict()
    for epoch in range(1, effort.epochs + 1):
        module.train()
        for some in np.array_split(training[groups(len(training), k, chance)], -(-len(training) // effort.batch)):
            optimizer.zero_grad(set_to_none=True)
            loss(some).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        progress(epoch)
        module.eval()
        validated = -epoch if validation is None else loss.validated(validation)
        if validated < best or epoch == 1:
            best, best_epoch = validated, epoch
            best_weights = {name: value.clone() for name, value in module.state_dict().items()}
        elif epoch - best_epoch > max(_PATIENCE, effort.epochs // _PATIENCE):
            progress(effort.epochs)
            break
    module.load_state_dict(best_weights)
    return best_epoch


def _share_of_rate(steps: int, step: int) -> float:
    return min(1.0, (step + 1) / _WARM_UP) * 0.5 * (1 + math.cos(math.pi * min(step, steps) / steps))


class _Loss:
    """The loss of a parity model on groups."""

    def __init__(
        self, module: nn.Module, inputs: Arrays, outputs: Arrays, code: Code, row: int, *, scores: bool
    ) -> None:
        self._module, self._inputs, self._outputs, self._code, self._row = module, inputs, outputs, code, row
        self._classes = next(iter(outputs)) if scores else None
        self._spread = {name: float(value.var()) or 1.0 for name, value in outputs.items()}

    def __call__(self, members: NDArray[np.int64]) -> torch.Tensor:
        encoded_inputs = encoded(self._code, self._row, self._inputs, members)
        wanted = targets(self._outputs, self._code, self._row, members)
        given = {name: torch.from_numpy(value) for name, value in encoded_inputs.items()}
        errors = _errors(self._module(**given), wanted)
        losses = [error.square().mean() / self._spread[name] for name, error in errors.items()]
        if self._classes is not None:
            own = torch.from_numpy(self._outputs[self._classes][members])
            weights = torch.tensor(_weights(self._code, self._row, members.shape[1]), dtype=own.dtype)[:, None]
            decoded = own + errors[self._classes][:, None] / weights
            made, exact = (scores.log_softmax(-1).flatten(0, 1) for scores in (decoded, own))
            losses.append(nn.functional.kl_div(made, exact, log_target=True, reduction="batchmean"))
        return torch.stack(losses).sum()

    def validated(self, members: NDArray[np.int64]) -> float:
        with torch.no_grad():
            return float(self(members))


def _weights(code: Code, row: int, k: int) -> list[float]:
    """The weights of the places of a group: (place + 1)^row, or the code's own `weight(place, row)`."""
    weight: Callable[[int, int], float] = getattr(code, "weight", lambda place, row: float((place + 1) ** row))
    return [weight(place, row) for place in range(k)]


def targets(outputs: Arrays, code: Code, row: int, members: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """The weighted sum of the deployed model's outputs for each group of `members`."""
    weights = np.array(_weights(code, row, members.shape[1]))
    return {n: np.einsum("gk...,k->g...", value[members], weights.astype(value.dtype)) for n, value in outputs.items()}


def _errors(answer: Any, wanted: Arrays) -> dict[str, torch.Tensor]:
    """What a module's answers are off by. Raises ModelError where they are not of the names and shapes wanted."""
    told = renamed(answer if isinstance(answer, dict) else {"output": answer}, wanted)
    if told is None:
        raise ModelError(f"the parity model answers {', '.join(answer)}; the deployed model {', '.join(wanted)}")
    errors = {}
    for name, value in wanted.items():
        if told[name].shape != value.shape:
            raise ModelError(
                f"the parity model's output {name!r} has shape {list(told[name].shape[1:])}; the deployed model's has "
                f"{list(value.shape[1:])}"
            )
        errors[name] = told[name] - torch.from_numpy(value)
    if torch.is_grad_enabled() and not any(error.requires_grad for error in errors.values()):
        raise ModelError("the parity model's forward computes without gradients; give one that can be trained")
    return errors


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
