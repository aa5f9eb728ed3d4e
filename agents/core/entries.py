"""What a join has heard of one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agents.core.loss import Loss
    from agents.core.request import Delivery, Path


class Entry:
    """What was heard of one request."""

    __slots__ = (
        "case",
        "deadline",
        "expected",
        "first",
        "held",
        "last",
        "losses",
        "offsets",
        "path",
        "request_id",
        "results",
        "sent",
    )

    def __init__(self, delivery: Delivery, expected: set[str]) -> None:
        self.request_id = delivery.request_id
        self.sent = delivery.sent
        self.deadline = delivery.deadline
        self.path: Path = dict(delivery.path)
        self.expected = expected  # those not heard yet
        self.first = delivery.offset
        self.last = delivery.offset
        self.offsets: list[int] = []  # of the parts, until it closes; then nothing more is added
        self.results: list[Delivery] = []
        self.losses: list[tuple[Delivery, Loss | None]] = []
        self.held = 0  # bytes of payloads that it keeps while it waits (`agents.core.refetch`)
        self.case: Any = None  # what of it is not durable (`agents.core.speculation`)

    def hand_over(self) -> tuple[list[Delivery], list[tuple[Delivery, Loss | None]]]:
        """Give the results and losses of a closed request away; only who was heard is remembered, no payloads."""
        results, losses = self.results, self.losses
        self.results, self.losses = [], []
        return results, losses
