"""Scenes to send: held-out digits, which no network saw, made ahead so that making them costs the run nothing."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from examples.plates.scenes import Scene, scenes

if TYPE_CHECKING:
    import numpy as np

COUNT = 512
SEED = 99


@lru_cache(maxsize=1)
def held_out() -> list[Scene]:
    """The scenes that queries cycle through."""
    return scenes(COUNT, "test", SEED)


def truth(index: int) -> str:
    """What stands on the plate of the query with this index."""
    return held_out()[index % COUNT].text


def scene(index: int, _rng: np.random.Generator) -> dict[str, Any]:
    """Inputs of the query with this index: `spillway replay --payload examples.plates.payload:scene`."""
    return {"image": held_out()[index % COUNT].image}
