"""What may leave the pipeline: an outcome is released once the states that it rests on would survive a crash.

Invariant: a released outcome never rests on a state that recovery does not reproduce. Pipelines without stateful
stages have no such states, so `Stateless` is all they need; with them, `checkpoint.logs` knows. The gate asks the same
questions of either, and so do the stages behind a stateful one.

Whoever answers keeps to this: an answer that is true once stays true; no version is both durable and dead; and of one
shard and one epoch, what is durable lies below what is not, and what is dead lies above what is not. (A later version
of a reign contains the earlier ones.) `checkpoint.awaited` rests on the latter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lineage.hops import Hop
    from lineage.marks import Mark


class Durability(Protocol):
    """Knows which state versions are durable."""

    def may_release(self, hops: Sequence[Hop]) -> bool:
        """Whether every state version that these hops generated or read is durable.

        Asked again for a held outcome whenever the gate's core is advanced; once true for some hops, it stays true.
        """

    def durable(self, mark: Mark) -> bool:
        """Whether one version is durable."""

    def dead(self, mark: Mark) -> bool:
        """Whether one version will not be reproduced by any recovery; once true, it stays true.

        What rests on it is discarded, and the live copy awaited. Where neither this nor `durable` is true, the answer
        is to wait.
        """


class Stateless:
    """No stage has state: everything may be released at once."""

    __slots__ = ()

    def may_release(self, hops: Sequence[Hop]) -> bool:  # noqa: ARG002 (the protocol's parameter)
        return True

    def durable(self, mark: Mark) -> bool:  # noqa: ARG002 (the protocol's parameter)
        return True

    def dead(self, mark: Mark) -> bool:  # noqa: ARG002 (the protocol's parameter)
        return False
