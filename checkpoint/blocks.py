"""Captured bytes: blocks of memory that several captured versions share, and the memory that is used again.

Invariants: a block is not written while anybody holds it; it is held by the capture that made it (as what the next
state is compared with) and by every captured version that contains it; memory that nobody holds is used again.
Not for use from several threads: whoever captures also releases.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.lineage.replication import DIGEST_BYTES

if TYPE_CHECKING:
    from spillway.checkpoint.arrays import Array


def digest_of(data: Any) -> bytes:
    """The digest that names a chunk's bytes: 16 bytes of blake2b, against accidents, not against forgers."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


class Held:
    """A chunk's bytes, which do not change."""

    __slots__ = ("_digest", "data")

    def __init__(self, data: Any) -> None:
        self.data = data
        self._digest: bytes | None = None

    @property
    def digest(self) -> bytes:
        """Computed once: what is shared between versions is hashed for the first of them only."""
        if self._digest is None:
            self._digest = digest_of(self.data)
        return self._digest


class Block(Held):
    """A chunk's bytes in memory that is used again."""

    __slots__ = ("holders",)

    def __init__(self, data: Array) -> None:
        super().__init__(data)
        self.holders = 1


class Pool:
    """Memory for blocks."""

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = {}
        self.allocated = 0  # bytes, in use or free

    def take(self, size: int) -> Block:
        """A block with one holder; its bytes are zeros or what an earlier block had at the same places."""
        free = self._free.get(size)
        if free:
            return Block(free.pop())
        self.allocated += size
        return Block(np.zeros(size, np.uint8))

    def let_go(self, block: Block) -> None:
        """Note that a holder has no use for a block any more."""
        block.holders -= 1
        if not block.holders:
            self._free.setdefault(len(block.data), []).append(block.data)

    def trim(self) -> None:
        self.allocated -= sum(size * len(free) for size, free in self._free.items())
        self._free.clear()
