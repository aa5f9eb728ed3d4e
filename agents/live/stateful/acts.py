"""What a member does about its role: called by `agents.live.stateful.roles`, done by the member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lineage.marks import Version


class Acts(Protocol):
    """What a member does about its role."""

    def load(self, epoch: int, version: Version) -> None:
        """Begin the reign of an epoch, from a version."""

    def stand_down(self) -> None:
        """End the reign, or the beginning of one."""

    def emit_again(self) -> None:
        """Send what has waited for the right to emit."""
