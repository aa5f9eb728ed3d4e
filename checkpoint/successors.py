"""The contents of a version that an operator makes: a state from elsewhere, and the rest of the version before.

A version says more than its state: how far the shard's inputs are covered, what it remembers against repeats, what it
has sent. An operator who puts another state in changes the state alone. Invariants:

* Inputs, deduplication and outputs are those of the base. What was covered stays covered: no query is asked again, no
  released outcome is taken back, and nothing is sent that was not.
* It has no batches of its own, so it requires nothing beyond what its base does.
* `n` goes on from the base, in the operator's own epoch: to everyone else it is a version like any other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lineage.marks import Version
from lineage.replication import Contents

if TYPE_CHECKING:
    from lineage.replication import ChunkRef


def successor(epoch: int, base: Version) -> Version:
    return Version(epoch, base.n + 1)


def with_state_of(base: Contents | None, state: Contents, chunks: tuple[ChunkRef, ...]) -> Contents:
    """The contents of `base` (None: of the initial version) with the state that `state` describes, in these chunks."""
    return replace(
        base if base is not None else Contents(),
        entries=state.entries,
        values=state.values,
        chunk_bytes=state.chunk_bytes,
        own_bytes=state.own_bytes,
        chunks=chunks,
        pages=state.pages,
        batches=(),
    )
