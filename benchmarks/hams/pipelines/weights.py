"""Where the trained weights of the recurrent networks are kept: in the user's cache folder, made on first use."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import torch
from torch import nn

SOURCES = ("scenes", "speech", "stocks", "vision", "training")


def weights_path() -> Path:
    """A file named by the sources that made it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    here = Path(__file__).parent
    made = hashlib.sha256(b"".join((here / f"{name}.py").read_bytes() for name in SOURCES))
    return cache / "spillway" / "hams" / f"{made.hexdigest()[:16]}.pt"


def ensure_trained() -> Path:
    """The weights file, trained now if this version of the services never was."""
    path = weights_path()
    if not path.exists():
        from benchmarks.hams.pipelines.training import train  # noqa: PLC0415 - it imports those who call this

        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            torch.save(train(), file)
        Path(file.name).replace(path)
    return path


def trained(net: nn.Module, name: str, *, untrained: bool = False) -> nn.Module:
    """`net` with the weights that were trained as `name`; `untrained` leaves it as it was built."""
    if not untrained:
        net.load_state_dict(torch.load(ensure_trained(), weights_only=True)[name])
    return net.eval()
