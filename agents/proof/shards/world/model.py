"""The model of the simulation: a state of several parts, each a hash chain over the requests that changed it.

What it computes shows what state it saw, and what it draws: no two executions give the same but those of a model
without randomness on the same state and requests. Some requests change nothing. A shared state's parts are all read by
every request; a keyed one's are pages of keys, and a request reads and changes the chain of its own key alone.
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
    return blake2b(repr(what).encode(), digest_size=8).hexdigest()


class Item(NamedTuple):
    """A request as the model sees it."""

    request: str
    parts: tuple[tuple[str, str], ...]  # (sender, value), in the order of the senders


class State(NamedTuple):
    """A state. Immutable here; who copies it slowly takes it part by part."""

    parts: tuple[str, ...] = ("",) * PARTS

    @property
    def digest(self) -> str:
        return hashed(self.parts)


def key_of(request: str, keys: int) -> str:
    """Give whose state a request is about, where there are so many keys."""
    return f"k{crc32(request.encode()) % keys}"


def changes(stage: str, item: Item) -> bool:
    return crc32(f"{stage} {item.request}".encode()) % _READS != 0


def compute(stage: str, state: State, item: Item, nonce: int, keys: int = 0) -> str:
    """Give what a request gets of this state. `keys`: how many there are; 0 of a shared state."""
    if not keys:
        return hashed(stage, state.parts, item, nonce)
    key = key_of(item.request, keys)
    return hashed(stage, _page(state.parts[_part(key)]).get(key), item, nonce)


def update(stage: str, state: State, items: Iterable[Item], nonce: int, keys: int = 0) -> State:
    parts = list(state.parts)
    for item in items:
        if changes(stage, item):
            key = key_of(item.request, keys) if keys else item.request
            part = _part(key)
            if keys:
                page = _page(parts[part])
                page[key] = hashed(page.get(key), item, nonce)
                parts[part] = " ".join(f"{name}={page[name]}" for name in sorted(page))
            else:
                parts[part] = hashed(parts[part], item, nonce)
    return State(tuple(parts))


def unreadable(stage: str, sender: str, request: str, share: float) -> bool:
    """Whether a stage cannot read what it gets for a request from a sender; mostly not."""
    return share > 0 and _chance(f"record {stage} {sender} {request}") < share / 2


def raises(stage: str, request: str, share: float) -> bool:
    """Whether a stage's model raises for a request, at every attempt; mostly not."""
    return share > 0 and _chance(f"model {stage} {request}") < share / 2


def _chance(what: str) -> float:
    return crc32(what.encode()) / (1 << 32)


def _part(key: str) -> int:
    return crc32(key.encode()) % PARTS


def _page(part: str) -> dict[str, str]:
    return dict(one.split("=") for one in part.split())
