"""The deployed models: the networks, trained on first use (seconds) and kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from examples.parm import data, networks

EPOCHS = 40
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Mlp(networks.Mlp):
    def __init__(self) -> None:
        super().__init__()
        load(self, networks.Mlp)


class LeNet(networks.LeNet):
    def __init__(self) -> None:
        super().__init__()
        load(self, networks.LeNet)


class ResNet(networks.ResNet):
    def __init__(self) -> None:
        super().__init__()
        load(self, networks.ResNet)


class Pairs(networks.Pairs):
    def __init__(self) -> None:
        super().__init__()
        load(self, networks.Pairs, data.pairs_training)


class Boxes(networks.Boxes):
    def __init__(self) -> None:
        super().__init__()
        load(self, networks.Boxes, data.boxes_training, nn.functional.mse_loss)


def load(
    model: nn.Module,
    network: type[nn.Module],
    given: Callable[[], data.Arrays] = data.training,
    loss: Loss = nn.functional.cross_entropy,
) -> None:
    """Give a model the weights of its network, which is trained now if this version of it never was."""
    path = weights_path(network.__name__)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            torch.save(train(network, given(), loss).state_dict(), file)
        Path(file.name).replace(path)
    model.load_state_dict(torch.load(path, weights_only=True))


def weights_path(name: str) -> Path:
    """Where weights are kept: a file named by the sources that made them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    sources = b"".join(Path(module.__file__ or "").read_bytes() for module in (data, networks))
    digest = hashlib.sha256(sources + Path(__file__).read_bytes()).hexdigest()[:16]
    return cache / "spillway" / "parm" / f"{name}-{digest}.pt"


def train(network: type[nn.Module], given: data.Arrays, loss: Loss) -> nn.Module:
    """Adam on the loss."""
    images, labels = torch.from_numpy(given["image"]), torch.from_numpy(given["label"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=1e-5)
        for _ in range(EPOCHS):
            for some in torch.randperm(len(labels)).split(32):
                optimizer.zero_grad()
                loss(model(images[some]), labels[some]).backward()
                optimizer.step()
    return model
