"""A recurrent torch module as a keyed stateful model: a hidden state per stream (HAMS, section II-B).

compute: the forward pass over all streams of the batch at once. update: each stream's new hidden state. The module's
parameters are constant and no part of the state. Imported only where a model is one: it imports torch.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from spillway.lineage.errors import ModelError
from spillway.lineage.values.tensors import Bfloat16

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from spillway.agents.models.inputs import Inputs
    from spillway.agents.models.state import State

    Batch = Sequence[Inputs]
    Results = Sequence[Mapping[str, Any]]


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


class Streams:
    """Runs `module(inputs, hidden) -> (said, hidden)`, as torch's recurrent layers are called.

    `start()` makes the hidden state of a new stream, named tensors with one entry along their dimension `dim` (1, as in
    torch.nn.LSTM); the module takes and returns a tuple of them in that order, or the tensor alone where there is one.
    `key(query)` tells the stream, `inputs(batch)` makes what the module is called with, and `answers(said, batch)` one
    result per query. Several queries of one stream in a batch follow one another, each upon the hidden state before.

    A stream's tensors are new ones after each update; those of before are never changed.
    """

    fixed_state = True  # `spillway.agents.models.placement`

    def __init__(
        self,
        build: Callable[[], torch.nn.Module],
        start: Callable[[], Mapping[str, torch.Tensor]],
        *,
        key: Callable[[Inputs], str],
        inputs: Callable[[Batch], torch.Tensor],
        answers: Callable[[Any, Batch], Results],
        dim: int = 1,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        with seeded(seed):
            self._module = build().to(device).eval()
        self.key = key
        self._start, self._inputs, self._answers = start, inputs, answers
        self._dim, self._device = dim, device
        self._after: dict[str, dict[str, torch.Tensor]] = {}

    def to(self, device: str) -> None:
        self._module, self._device = self._module.to(device), device

    def initialize(self) -> State:
        return {name: tensor.to(self._device) for name, tensor in self._start().items()}

    def compute(self, states: Mapping[str, State], batch: Batch) -> list[Mapping[str, Any]]:
        """Answer all; a second query of a stream goes into a second round."""
        self._after = {}
        results: dict[int, Mapping[str, Any]] = {}
        for turn in self._rounds(batch):
            before = [self._after.get(key) or states[key] for key in map(self.key, (batch[index] for index in turn))]
            said, after = self._forward([batch[index] for index in turn], before)
            for index, answer, hidden in zip(turn, said, after, strict=True):
                results[index] = answer
                self._after[self.key(batch[index])] = hidden
        return [results[index] for index in range(len(batch))]

    def update(self, states: Mapping[str, State], batch: Batch, outputs: Results) -> dict[str, State]:  # noqa: ARG002
        return {key: self._after[key] for key in states}

    def _rounds(self, batch: Batch) -> list[list[int]]:
        turns: list[list[int]] = []
        seen: dict[str, int] = {}
        for index, query in enumerate(batch):
            key = self.key(query)
            seen[key] = seen.get(key, -1) + 1
            if seen[key] == len(turns):
                turns.append([])
            turns[seen[key]].append(index)
        return turns

    def _forward(self, batch: Batch, before: list[Any]) -> tuple[Results, list[dict[str, torch.Tensor]]]:
        names = list(before[0])
        joined = [
            torch.cat([as_tensor(hidden[name]).to(self._device) for hidden in before], self._dim) for name in names
        ]
        with torch.no_grad():
            said, after = self._module(self._inputs(batch).to(self._device), _alone(joined))
        columns = [after] if isinstance(after, torch.Tensor) else list(after)
        split = [[part.clone() for part in column.split(1, self._dim)] for column in columns]
        answers = self._answers(said.cpu() if isinstance(said, torch.Tensor) else said, batch)
        return answers, [dict(zip(names, parts, strict=True)) for parts in zip(*split, strict=True)]


def _alone(hidden: list[torch.Tensor]) -> Any:
    return hidden[0] if len(hidden) == 1 else tuple(hidden)
