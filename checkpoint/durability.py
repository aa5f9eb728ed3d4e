"""What may leave the pipeline: an outcome is released once the states that it rests on would survive a crash.

Invariant: a released outcome never rests on a state that recovery does not reproduce. Pipelines without stateful
stages have no such states, so `Stateless` is all they need; the gate asks the same question of either.
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


class Stateless:
    """No stage has state: everything may be released at once."""

    __slots__ = ()

    def may_release(self, hops: Sequence[Hop]) -> bool:  # noqa: ARG002 (the protocol's parameter)
        """Allow it."""
        return True
