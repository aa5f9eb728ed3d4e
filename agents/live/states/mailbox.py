"""Calls from the threads of this package to the thread that owns what they call.

Every class here takes a `post`: `post(callback, *args)` has the callback called later, in order, by its owner's thread.
`loop.call_soon_threadsafe` is one; `Mailbox.post` is one for a thread without a loop, which calls `deliver` in its
rounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

Post = Callable[..., object]


class Mailbox:
    """Calls that wait for a thread that has no loop."""

    def __init__(self) -> None:
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        """Have a callback called by the next `deliver`. From any thread."""
        self._calls.append((callback, args))

    def deliver(self) -> int:
        """Call what was posted until now, in order; say how much that was."""
        count = len(self._calls)
        for _ in range(count):
            callback, args = self._calls.popleft()
            callback(*args)
        return count
