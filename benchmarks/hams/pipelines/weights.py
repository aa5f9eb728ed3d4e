"""Trains recurrent networks by a seed, in some 20 seconds of a processor, and keeps their weights in the cache folder.

Online learners (`labelling`, `stocks`' regressions) need none of this: they start blank.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from spillway.agents.models.torch_streams import Streams

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 11
Weights = dict[str, dict[str, Tensor]]


class Recurrent(nn.Module):
    """Vectors (n, steps, inputs) of one stream, in order -> (n, steps, outputs), remembering what came before.

    With `words` these are their numbers, (n, steps), and each has a vector.
    """

    def __init__(self, inputs: int, width: int, outputs: int, words: int = 0) -> None:
        super().__init__()
        self.vectors = nn.Embedding(words, inputs) if words else nn.Identity()
        self.body = nn.LSTM(inputs, width, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, seen: Tensor, hidden: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Any]:
        out, hidden = self.body(self.vectors(seen), hidden)
        return self.head(out), hidden


def streams(
    net: Callable[[], Recurrent],
    name: str,
    train: Callable[[], Weights],
    key: str,
    inputs: Any,
    answers: Any,
    *,
    untrained: bool,
) -> Streams:
    """Make a model that keeps a network's hidden state for each stream, which the input `key` names."""

    def hidden() -> dict[str, Tensor]:
        width = net().body.hidden_size
        return {"h": torch.zeros(1, 1, width), "c": torch.zeros(1, 1, width)}

    return Streams(
        lambda: trained(net(), name, train, untrained=untrained),
        hidden,
        key=lambda query: query[key],
        inputs=inputs,
        answers=answers,
    )


def fit(
    net: nn.Module, loss: Callable[[Tensor], Tensor], count: int, steps: int, *, size: int = 32, rate: float = 1e-2
) -> None:
    """Adam on random batches, on a one-cycle schedule; `loss` takes the indices of a batch."""
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss(torch.randint(count, (size,))))
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    net.eval()


def trained(net: nn.Module, name: str, train: Callable[[], Weights], *, untrained: bool = False) -> nn.Module:
    """`net` with the weights that `train` gives by its name, once; `untrained` leaves it as it was built."""
    if not untrained:
        path = _path(train.__module__)
        if not path.exists():
            _save(train, path)
        net.load_state_dict(torch.load(path, weights_only=True)[name])
    return net.eval()


def _save(train: Callable[[], Weights], path: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        weights = train()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        torch.save(weights, file)
    Path(file.name).replace(path)


def _path(module: str) -> Path:
    """A file named by the sources that made it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    sources = sorted(Path(__file__).parent.glob("*.py"))
    made = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:16]
    return cache / "spillway" / "hams" / f"{module.rpartition('.')[2]}-{made}.pt"
