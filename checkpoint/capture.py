"""The copy of a state that is made while the next batch computes (HAMS, section IV-B), on the CPU.

Only `update` changes a state, so while `compute` runs it stands still; the next `update` waits until `take` has
returned, and for nothing else. Invariants:

* A captured version is the state at the moment of `take`, whatever the model does to its tensors later.
* No change is lost. A chunk's bytes are compared with those captured last, and copied where they differ: as fast as
  copying, and exact. torch's version counters are not believed unless told: they miss writes through `.data`, through
  numpy and by fused optimizers (`torch.optim.Adam(fused=True)` does not raise them).
* What did not change is neither copied nor hashed nor written again: versions share its block. Memory is used again;
  at most four copies of what changes exist: three slots (`checkpoint.slots`) and the one being made.
* Of a keyed state only the keys named as touched are looked at, removed ones included; a change to another one is lost
  until that key is named. So a stage names every key that its model was given.

Not for use from several threads: one thread takes and releases; another may read what it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from checkpoint import arrays
from checkpoint.blocks import Block, Pool
from checkpoint.layout import CHUNK_BYTES, OWN_BYTES, Span, spans_of
from checkpoint.state import Flat, flatten
from lineage.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from checkpoint.arrays import Array
    from checkpoint.pages import Page, Pages
    from lineage.replication import Entry

_SAMPLE = 4_096  # bytes that are compared before the rest: what changes, mostly changes there too


class Captured:
    """One version of a state, as it was. Whoever has it holds its memory until `release`."""

    __slots__ = ("_pool", "blocks", "changed", "chunk_bytes", "entries", "own_bytes", "pages", "values")

    def __init__(self, flat: Flat, blocks: tuple[Block, ...], pages: tuple[Page, ...], capture: Capture) -> None:
        self.entries: tuple[Entry, ...] = flat.entries
        self.values: dict[str, Any] = flat.values
        self.blocks: tuple[Block, ...] = blocks  # of the tensors, in the order of their layout
        self.pages = pages  # of the keyed part
        self.chunk_bytes = capture.chunk_bytes
        self.own_bytes = capture.own_bytes
        self.changed = 0  # bytes that were copied for it
        self._pool: Pool | None = capture.pool

    @property
    def nbytes(self) -> int:
        """Bytes of its chunks."""
        return sum(len(block.data) for block in self.blocks) + sum(page.nbytes for page in self.pages)

    def release(self) -> None:
        """Give its memory back. Raises CheckpointError the second time."""
        if self._pool is None:
            raise CheckpointError("a captured version was released twice")
        for block in self.blocks:
            self._pool.let_go(block)
        self._pool = None


class Capture:
    """Captures the versions of one shard's state, one after the other."""

    def __init__(
        self,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        own_bytes: int = OWN_BYTES,
        pages: Pages | None = None,
        trust_counters: bool = False,
    ) -> None:
        """`trust_counters`: believe torch where it says that a tensor was not written."""
        self.chunk_bytes = chunk_bytes
        self.own_bytes = own_bytes
        self.pool = Pool()
        self._pages = pages
        self._trust = trust_counters
        self._entries: tuple[Entry, ...] | None = None
        self._spans: tuple[Span, ...] = ()
        self._blocks: tuple[Block, ...] = ()
        self._stamps: list[Any] = []

    def take(
        self,
        state: Mapping[Any, Any],
        keyed: Mapping[str, Mapping[Any, Any]] | None = None,
        touched: Iterable[str] | None = None,
    ) -> Captured:
        """Capture a state: its shared part, and of its keyed one the touched keys (None: all, as at first).

        Raises StateError for what cannot be kept; nothing is captured then.
        """
        flat = flatten(state)
        if (keyed is None) != (self._pages is None):
            raise CheckpointError("a keyed state is captured with pages, one without keys without")
        changed = self._pages.update(keyed, touched) if self._pages is not None and keyed is not None else 0
        if flat.entries != self._entries:
            self._start(flat)
        stamps = self._stamps_of(flat) if self._trust else []
        views: dict[int, Array] = {}
        blocks = []
        for at, span in enumerate(self._spans):
            before = self._blocks[at] if self._blocks else None
            if before is None or not self._same(flat, span, before, views, stamps):
                blocks.append(self._copy(flat, span, views))
                changed += span.size
            else:
                before.holders += 1
                blocks.append(before)
        self._remember(tuple(blocks), stamps)
        captured = Captured(flat, self._blocks, self._pages.now if self._pages is not None else (), self)
        captured.changed = changed
        return captured

    def _start(self, flat: Flat) -> None:
        """Forget what was captured: other entries have another layout."""
        self._remember((), [])
        self.pool.trim()
        self._entries = flat.entries
        self._spans = spans_of(flat.entries, self.chunk_bytes, self.own_bytes)

    def _remember(self, blocks: tuple[Block, ...], stamps: list[Any]) -> None:
        for block in self._blocks:
            self.pool.let_go(block)
        for block in blocks:
            block.holders += 1
        self._blocks, self._stamps = blocks, stamps

    def _stamps_of(self, flat: Flat) -> list[Any]:
        counters = [arrays.written(leaf) for leaf in flat.leaves]
        # Of an array that torch knows nothing about, nothing equals its stamp: it is compared.
        return [counter() if counter is not None else object() for counter in counters]

    def _same(self, flat: Flat, span: Span, before: Block, views: dict[int, Array], stamps: list[Any]) -> bool:
        for tensor, start, stop, at in span.pieces:
            if stamps and self._stamps and stamps[tensor] == self._stamps[tensor]:
                continue
            view = views.get(tensor)
            if view is None:
                view = views[tensor] = arrays.flat(flat.tensors[tensor])
            if not _equal(view[start:stop], before.data[at : at + stop - start]):
                return False
        return True

    def _copy(self, flat: Flat, span: Span, views: dict[int, Array]) -> Block:
        block = self.pool.take(span.size)
        if len(span.pieces) > 1:
            block.data.fill(0)  # between them, where another layout had its bytes: equal states have equal chunks
        for tensor, start, stop, at in span.pieces:
            view = views.get(tensor)
            if view is None:
                view = views[tensor] = arrays.flat(flat.tensors[tensor])
            np.copyto(block.data[at : at + stop - start], view[start:stop])
        return block


def _equal(one: Array, other: Array) -> bool:
    """Whether bytes are the same: a sample first, then the rest by words of eight bytes."""
    if not np.array_equal(one[:_SAMPLE], other[:_SAMPLE]):
        return False
    words = len(one) // 8 * 8
    return np.array_equal(one[words:], other[words:]) and np.array_equal(
        one[_SAMPLE:words].view(np.uint64), other[_SAMPLE:words].view(np.uint64)
    )
