"""Model instances as the batcher sees them: what each runs, and what forms for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agents.core.request import Request

IDLE = float("-inf")  # the expected end of an instance that runs nothing


class Batch:
    """Requests that one instance runs together, from `started` to, as far as is known then, `expected_end`."""

    __slots__ = ("expected_end", "instance", "requests", "started")

    def __init__(self, instance: int, requests: list[Request], started: float, expected_end: float) -> None:
        self.instance = instance
        self.requests = requests
        self.started = started
        self.expected_end = expected_end

    def __repr__(self) -> str:
        return f"Batch({self.instance}, {len(self.requests)} requests, {self.started} to {self.expected_end})"


class Instance:
    """One model instance of a queue."""

    __slots__ = ("ends", "forming", "index", "opened", "running")

    def __init__(self, index: int) -> None:
        self.index = index
        self.running: Batch | None = None
        self.ends = IDLE  # expected end of the running batch
        self.forming: list[Request] = []
        self.opened = 0.0  # when the first of `forming` entered; meaningless while that is empty
