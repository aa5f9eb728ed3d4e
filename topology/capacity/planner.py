from __future__ import annotations
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Sizing(NamedTuple):
    """What a stage has in a plan: how many workers, the largest batch, and the seconds of a batch of n."""

    workers: int
    batch: int
    duration: Callable[[int], float]
