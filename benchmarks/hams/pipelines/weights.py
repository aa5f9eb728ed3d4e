"""Trains recurrent networks by a seed, in some 20 seconds of a processor, and keeps their weights in the cache folder.

Online learners (`labelling`, `stocks`' regressions) need none of this: they start blank.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 11
Weights = dict[str, dict[str, Tensor]]


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
