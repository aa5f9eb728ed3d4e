"""An ordinary torch module and its optimizer as a stateful model that learns while it serves (HAMS, section II-B).

compute: forward, loss, backward. update: the optimizer's step. The state is everything that a step changes: the
module's parameters and buffers (`module.<name>`) and the optimizer's (`optimizer.<parameter>.<name>`, and
`optimizer.groups`, the settings of its parameter groups). Imported only where a model is one: it imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.func import functional_call

from spillway.agents.models.torch_streams import as_tensor, fill, seeded
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spillway.agents.models.inputs import Inputs
    from spillway.agents.models.state import State

    Batch = Sequence[Inputs]
    Results = Sequence[Mapping[str, Any]]

GROUPS = "optimizer.groups"


class Learner:
    """Trains on each batch once, in the order in which batches come, and answers with what it knew before.

    `build()` makes the module and `optimize(parameters)` its optimizer, under a fixed seed: every process has to begin
    alike. `inputs(batch)` is what the module is called with, `loss(said, batch)` what to descend, summed or averaged as
    in any training loop, and `answers(said)` one result per query. Queries for which `reads` holds are only answered:
    with the module in its evaluating mode, while the others run in its training mode.

    The state's tensors are the module's and the optimizer's own, and `update` changes them in place. Any other state
    that `compute` is given is copied into them first. Buffers that a forward pass changes (the statistics of
    BatchNorm) change in `update`. What the module draws at random (Dropout) is no part of the state.
    """

    fixed_state = True  # `spillway.agents.models.placement`

    def __init__(
        self,
        build: Callable[[], torch.nn.Module],
        optimize: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer],
        *,
        inputs: Callable[[Batch], torch.Tensor],
        loss: Callable[[torch.Tensor, Batch], torch.Tensor],
        answers: Callable[[torch.Tensor, Batch], Results],
        reads: Callable[[Inputs], bool] | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self._build, self._optimize, self._seed, self._device = build, optimize, seed, device
        self._inputs, self._loss, self._answers, self._reads = inputs, loss, answers, reads
        self._state: State = {}
        self._buffers: dict[str, torch.Tensor] = {}
        self._module, self._optimizer = self._make()

    def _make(self) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        self._fresh = True
        with seeded(self._seed):
            module = self._build().to(self._device)
            return module, self._optimize(module.parameters())

    def to(self, device: str) -> None:
        self._device = device
        self._module, self._optimizer = self._make()
        self._state = {}

    def initialize(self) -> State:
        if not self._fresh:
            self._module, self._optimizer = self._make()
        self._state = self._own()
        return self._state

    def reads(self, query: Inputs) -> bool:
        return self._reads is not None and self._reads(query)

    def compute(self, state: State, batch: Batch) -> list[Mapping[str, Any]]:
        if state is not self._state:
            self._load(state)
        self._optimizer.zero_grad(set_to_none=True)
        teaching = [not self.reads(query) for query in batch]
        learnt = iter(self._learn([query for query, teaches in zip(batch, teaching, strict=True) if teaches]))
        asked = iter(self._answer([query for query, teaches in zip(batch, teaching, strict=True) if not teaches]))
        return [next(learnt if teaches else asked) for teaches in teaching]

    def update(self, state: State, batch: Batch, outputs: Results) -> State:  # noqa: ARG002 - the contract's
        if state is not self._state:
            raise ModelError("Learner.update: this is not the state that compute was given; pass the same mapping on")
        self._fresh = False
        self._optimizer.step()
        with torch.no_grad():
            for name, tensor in self._module.named_buffers():
                if name in self._buffers:
                    tensor.copy_(self._buffers[name])
        self._state = self._own()
        return self._state

    def _answer(self, batch: Batch) -> Results:
        if not batch:
            return []
        self._module.eval()
        with torch.no_grad():
            return self._answers(self._module(self._inputs(batch).to(self._device)).cpu(), batch)

    def _learn(self, batch: Batch) -> Results:
        self._buffers = {}
        if not batch:
            return []
        self._module.train()
        self._buffers = {name: buffer.clone() for name, buffer in self._module.named_buffers()}
        said = functional_call(self._module, self._buffers, (self._inputs(batch).to(self._device),))
        torch.autograd.backward(self._loss(said, batch))
        return self._answers(said.detach().cpu(), batch)

    def _own(self) -> State:
        state: dict[str, Any] = {f"module.{name}": tensor for name, tensor in self._module.state_dict().items()}
        kept = self._optimizer.state_dict()
        names = self._parameter_names()
        for index, entries in kept["state"].items():
            for name, value in entries.items():
                state[f"optimizer.{names[index]}.{name}"] = value
        groups = kept["param_groups"]
        state[GROUPS] = [{name: value for name, value in group.items() if name != "params"} for group in groups]
        return state

    def _parameter_names(self) -> list[str]:
        names = {parameter: name for name, parameter in self._module.named_parameters()}
        return [names[each] for group in self._optimizer.param_groups for each in group["params"]]

    def _load(self, state: State) -> None:
        told, kept = state.get(GROUPS, ()), self._optimizer.state_dict()
        if len(told) != len(kept["param_groups"]):
            raise ModelError(f"Learner: the state's {GROUPS!r} are {len(told)}, not {len(kept['param_groups'])}")
        self._fresh = False
        fill("Learner", {f"module.{name}": tensor for name, tensor in self._module.state_dict().items()}, state)
        entries: dict[int, dict[str, Any]] = {}
        for index, parameter in enumerate(self._parameter_names()):
            prefix = f"optimizer.{parameter}."
            found = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
            if found:
                entries[index] = {name: as_tensor(value) for name, value in found.items()}
        groups = [
            {**told, "params": group["params"]} for told, group in zip(state[GROUPS], kept["param_groups"], strict=True)
        ]
        self._optimizer.load_state_dict({"state": entries, "param_groups": groups})
        self._state = state
