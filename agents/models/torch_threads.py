"""How many threads torch uses for one operation, where a model has imported it."""

from __future__ import annotations

import sys
from typing import Final

TORCH_THREADS: Final = 1  # a stage uses more cores by replicas and instances


def limit_torch_threads(threads: int) -> None:
    """Let torch, if a model has imported it, use this many threads for one operation."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
