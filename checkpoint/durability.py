"""What may leave the pipeline: an outcome is released once the states that it rests on would survive a crash.

Invariant: a released outcome never rests on a state that recovery does not reproduce. Pipelines without stateful
stages have no such states, so `Stateless` is all they need; with them, `checkpoint.logs` knows. The gate asks the same
questions of either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lineage.hops import Hop


class Durability(Protocol):
    """Knows which state versions are durable."""

    def may_release(self, hops: Sequence[Hop]) -> bool:
        """Whether every state version that these hops generated or read is durable.

        Asked again for a held outcome whenever the gate's core is advanced; once true for some hops, it stays true.
        """

    def is_dead(self, hops: Sequence[Hop]) -> bool:
        """Whether a version that these hops generated or read will not be reproduced by any recovery.

        Such an outcome is discarded, and the live one awaited; once true for some hops, it stays true. Where neither
        this nor `may_release` is true, the answer is to wait.
        """


class Stateless:
    """No stage has state: everything may be released at once."""

    __slots__ = ()

    def may_release(self, hops: Sequence[Hop]) -> bool:  # noqa: ARG002 (the protocol's parameter)
        """Allow it."""
        return True

    def is_dead(self, hops: Sequence[Hop]) -> bool:  # noqa: ARG002 (the protocol's parameter)
        """Nothing can be lost."""
        return False
