"""What a reign does about updates that raise: it tells `agents.core.suspects`, and asks for a new reign.

A state that an update has left half changed is never used again: nothing of this reign is computed, copied or written
from then on, as the core waits for an update that never ends. The member claims its shard anew at once and takes the
state of the newest complete version, from its own copy or from the log. It does not yield: a backup would meet the
same queries, and know less.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from agents.live.stateful.work import UpdateError

if TYPE_CHECKING:
    from agents.core.batching import Batch
    from agents.live.stateful.means import Means

log = logging.getLogger(__name__)


class Trial:
    """The suspects of a member during one reign."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._recorded: deque[tuple[int, list[str]]] = deque()  # versions that had batches while there were suspects

    def tries(self, batch: Batch) -> bool:
        """Whether a batch that is computed now is to be tried on a copy first."""
        suspects = self._means.suspects
        return bool(suspects) and suspects.tries(_ids(batch))

    def computed(self, batch: Batch, guilty: int, n: int) -> None:
        """Note that a batch was recorded in version n, and how many of its queries were found to raise."""
        suspects = self._means.suspects
        if guilty:
            suspects.guilty()
        if suspects:
            self._recorded.append((n, _ids(batch)))

    def durable(self, n: int) -> None:
        """Note the newest durable version of the reign."""
        while self._recorded and self._recorded[0][0] <= n:
            self._means.suspects.durable(self._recorded.popleft()[1])

    def raised(self, batch: Batch, error: UpdateError) -> None:
        """Have the reign end whose state may be half changed; or the member, where a new one would not help."""
        if self._means.suspects.raised(_ids(batch)):
            log.error("%s; a new reign begins before it", error)
            self._means.begin_anew("an update has raised")
        else:
            text = f"{error}; it went well on a copy, and has raised three times all the same, so this member ends"
            self._means.crashed(UpdateError(text))


def _ids(batch: Batch) -> list[str]:
    return [request.request_id for request in batch.requests]
