"""What a user's state keeps of observations: the last ones, to make weights over new features from.

The items are kept by name, as a line of JSON each, since the catalogue of other features may have another order; they
stand in one array, which a log keeps by the chunk. Of every five observations, by their number since the user's first,
one is held out from training in each of five turns, to judge new features by; from those that are served, the fifth.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from spillway.agents.learning.velox.model import Item

HELD_EVERY: Final = 5

Observed = dict[str, Any]


def none() -> Observed:
    """Of a user of whom nothing was observed."""
    return {"items": np.zeros(0, np.uint8), "values": np.zeros(0), "n": 0}


def added(observed: Mapping[str, Any], item: Item, value: float, most: int) -> Observed:
    """These observations and one more; of more than `most` the oldest are dropped."""
    lines = observed["items"].tobytes() + json.dumps(item).encode() + b"\n"
    values = np.append(observed["values"], value)
    over = max(0, len(values) - most)
    for _ in range(over):
        lines = lines[lines.index(b"\n") + 1 :]
    return {"items": np.frombuffer(lines, np.uint8).copy(), "values": values[over:].copy(), "n": observed["n"] + 1}


def items_of(observed: Mapping[str, Any]) -> list[Item]:
    """The items, the oldest first, as `observed["values"]` has what was said of them."""
    items: list[Item] = json.loads(b"[" + b",".join(observed["items"].tobytes().split(b"\n")[:-1]) + b"]")
    return items


def numbers(observed: Mapping[str, Any]) -> NDArray[np.int_]:
    """The observations' numbers since the user's first."""
    return np.arange(observed["n"] - len(observed["values"]), observed["n"])


def held_out(observed: Mapping[str, Any], turn: int = HELD_EVERY - 1) -> NDArray[np.bool_]:
    """Which of the observations are kept from training in a turn; by default the last, whose features are served."""
    held: NDArray[np.bool_] = numbers(observed) % HELD_EVERY == turn
    return held
