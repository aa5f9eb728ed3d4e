"""The model of the simulation: a state of several parts, each a hash chain over the requests that changed it.

What it computes shows what state it saw, and what it draws: no two executions give the same but those of a model
without randomness on the same state and requests. Some requests change nothing.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable

PARTS = 4
_READS = 5  # of so many requests one changes nothing


def hashed(*what: object) -> str:
    """Give a short digest."""
    return blake2b(repr(what).encode(), digest_size=8).hexdigest()


class Item(NamedTuple):
    """A request as the model sees it."""

    request: str
    values: tuple[str, ...]  # of its parts, in the order of their senders


class State(NamedTuple):
    """A state. Immutable here; who copies it slowly takes it part by part."""

    parts: tuple[str, ...] = ("",) * PARTS

    @property
    def digest(self) -> str:
        """Its digest."""
        return hashed(self.parts)


def changes(stage: str, item: Item) -> bool:
    """Whether a request changes the state."""
    return crc32(f"{stage} {item.request}".encode()) % _READS != 0


def compute(stage: str, state: State, item: Item, nonce: int) -> str:
    """Give what a request gets of this state."""
    return hashed(stage, state.parts, item, nonce)


def update(stage: str, state: State, items: Iterable[Item], nonce: int) -> State:
    """Give the state after a batch."""
    parts = list(state.parts)
    for item in items:
        if changes(stage, item):
            part = crc32(item.request.encode()) % PARTS
            parts[part] = hashed(parts[part], item, nonce)
    return State(tuple(parts))


def poisoned(stage: str, request: str, share: float) -> str:
    """Say how a stage fails a request: its `record` cannot be read, its `model` raises, or, mostly, not at all."""
    chance = crc32(f"poison {stage} {request}".encode()) / (1 << 32)
    return "" if chance >= share else "record" if chance < share / 2 else "model"
