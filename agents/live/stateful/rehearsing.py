"""A backup computes one query before it has to: what a model does at its first batch alone, no promotion waits for.

Kernels are chosen, memory is touched and modules are imported at a model's first batch: tens of milliseconds for a
small torch module, which its first outputs after a failover would have waited for. So the first query that a backup
reads is computed, updated and encoded on a state that the model makes anew, on the thread where models run. All of it
is thrown away, whatever it comes to: nothing is sent, and the copy of the state is not touched.

It takes memory for one more state for as long as it lasts, which is less than a primary needs.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from agents.live.stage.intake import PoisonError
from agents.live.stateful.replaying import request_of
from agents.models.stateful import Machine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokafka.structs import ConsumerRecord

    from agents.core.request import Delivery, Request
    from agents.live.stateful.means import Means
    from agents.models.stateful import StatefulModel

log = logging.getLogger(__name__)

_OPEN = 64  # queries of a join some of whose parts have been read


class Rehearsal:
    """The one rehearsal of a member's process."""

    def __init__(self, place: str, model: StatefulModel, means: Means, *, parts: int) -> None:
        """`place` begins what is logged; a query has come when so many `parts` of it have."""
        self._place = place
        self._model = model
        self._means = means
        self._parts = parts
        self._open: dict[str, dict[str, Delivery]] = {}  # by request id, and by whom the part came from
        self._over = False

    def look(self, records: Iterable[ConsumerRecord]) -> None:
        """Rehearse the first query that is whole among these and those before; once there was one, do nothing."""
        if self._over:
            return
        for record in records:
            request = self._whole(record)
            if request is not None:
                self.skip()
                self._means.models.submit(partial(self._rehearse, request), _nothing)
                return

    def skip(self) -> None:
        self._over = True
        self._open.clear()

    def _whole(self, record: ConsumerRecord) -> Request | None:
        try:
            part = self._means.intake.delivery(record)
        except PoisonError:  # the primary says what is wrong with it
            return None
        if part.lost:
            return None
        parts = self._open.setdefault(part.request_id, {})
        parts[part.predecessor] = part
        if len(parts) == self._parts:
            return request_of(list(parts.values()))
        if len(self._open) > _OPEN:
            del self._open[next(iter(self._open))]
        return None

    def _rehearse(self, request: Request) -> None:
        try:
            self._means.work.rehearse(Machine(self._place, self._model), request)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code; a primary says what a query does to it
            log.info("%s: a query was rehearsed and failed: %s: %s", self._place, type(error).__name__, error)


def _nothing(_result: object) -> None:
    """A rehearsal comes to nothing."""
