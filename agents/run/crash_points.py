"""Named points of a process's work at which tests have it die or wait; without a hook nothing happens at them.

* compute, capture, outputs, renewal, claim, fence: before and after that step, as whoever takes it calls it.
* chunks: before the first is made; amid them, before each further one; after all of a version are acknowledged.
* manifest: before it is handed over, when all that it stands for is acknowledged; after, when it may or may not arrive.
* ack (of the manifest): before anybody here is told of it; after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

hook: Callable[[str], object] | None = None  # called with each point's name, by the thread that comes to it


def at(name: str) -> None:
    if hook is not None:
        hook(name)
