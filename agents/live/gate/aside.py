"""A call in a thread of its own, so that one which never returns holds up nobody.

librdkafka (2.16) does not keep the time limit of `send_offsets_to_transaction`: it waits for the group's coordinator,
and where that was dropped from the list of brokers while it restarted, it waits for good (its issues 5456 and 5511).
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from producers.patience import unanswered

if TYPE_CHECKING:
    from collections.abc import Callable


class Aside:
    """Makes one call after the other. Once one is given up, this is of no more use: its thread may wait forever."""

    def __init__(self, name: str) -> None:
        self._asked: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[KafkaException | None] = queue.SimpleQueue()
        self._under_way = False
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def call(self, call: Callable[[], object], seconds: float) -> None:
        """Make `call`, or await the one that is under way; raise what it raises.

        Raises a `KafkaException` that says to try again when it has not ended within `seconds`.
        """
        if not self._under_way:
            self._asked.put(call)
        self._under_way = True
        try:
            raised = self._ended.get(timeout=seconds)
        except queue.Empty:
            raise unanswered() from None
        self._under_way = False
        if raised is not None:
            raise raised

    def close(self) -> None:
        """Let the thread end, as soon as it can."""
        self._asked.put(None)

    def _work(self) -> None:
        while (call := self._asked.get()) is not None:
            try:
                call()
            except KafkaException as error:
                self._ended.put(error)
            else:
                self._ended.put(None)
