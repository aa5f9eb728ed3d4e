"""The one timer of a driver: it rings when the core next has something to do by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Alarm:
    """An alarm of the running event loop; `ring` is called on it.

    A moment that is later than the one that is set is dropped: the core is asked anew when the alarm has rung.
    """

    def __init__(self, ring: Callable[[], object]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def within(self, seconds: float) -> None:
        """Ring in so many seconds at the latest."""
        due = self._loop.time() + max(0.0, seconds)
        if self._timer is not None:
            if self._timer.when() <= due:
                return  # it rings early enough
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._due)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        self._ring()
