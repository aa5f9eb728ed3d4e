"""The state of a version that has a copy and the batches after it: lineage-stash's recovery (HAMS, section VI-A).

The batches' input records are read again, by partition and offset, and computed and updated in the recorded order.
Nothing is sent: what the batches sent was acknowledged before their record was. A model with chance in it comes to
another state than the one whose outputs have left; that is what this mode promises less than the others.
"""

from __future__ import annotations

import logging
from contextlib import closing
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from spillway.agents.core.request import Request
from spillway.agents.live.spans import SpanReader
from spillway.agents.models.model_errors import words_of
from spillway.agents.models.stateful import Machine
from spillway.agents.run.emission import about
from spillway.agents.run.intake import PoisonError
from spillway.lineage.errors import CheckpointError
from spillway.producers.kafka.records import record_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spillway.agents.core.request import Delivery
    from spillway.agents.live.stateful.context import MemberContext
    from spillway.agents.live.stateful.work import StatefulWork
    from spillway.agents.models.stateful import StatefulModel
    from spillway.agents.run.intake import Intake
    from spillway.lineage.ports import Record
    from spillway.lineage.replication import Batch, InputRecord

log = logging.getLogger(__name__)
_WITHIN = 120.0


def read_taken(settings: Mapping[str, Any], topic: str, batches: Iterable[Batch]) -> dict[tuple[int, int], Record]:
    """Read the input records of batches, by partition and offset. `settings` are confluent-kafka's; it blocks."""
    with closing(SpanReader(settings, topic)) as reader:
        found = reader.records(((one.partition, one.offset) for batch in batches for one in batch.taken), _WITHIN)
    return {place: record_of(message) for place, message in found.items()}


def replay(
    machine: Machine,
    work: StatefulWork,
    intake: Intake,
    batches: Sequence[Batch],
    records: Mapping[tuple[int, int], Record],
) -> int:
    """Apply batches to a machine, in their order; how many requests that were. It blocks.

    Raises CheckpointError for a record that is gone: the topic's retention is shorter than the time between two copies.
    """
    count = 0
    for batch in batches:
        requests = [
            request_of([_delivery(intake, one, records) for one in parts])
            for _, parts in groupby(batch.taken, key=lambda record: record.request)
        ]
        if requests:
            work.again(machine, requests)
            count += len(requests)
    return count


def _delivery(intake: Intake, one: InputRecord, records: Mapping[tuple[int, int], Record]) -> Delivery:
    record = records.get((one.partition, one.offset))
    if record is None:
        raise CheckpointError(
            f"offset {one.offset} of partition {one.partition}, of request {one.request!r:.80}, is no longer in the "
            "stage's input, so its state cannot be recomputed: take checkpoints more often (checkpoint_every), or "
            "raise the topic's retention"
        )
    return intake.delivery(record)


def request_of(parts: list[Delivery]) -> Request:
    """The request that some parts make, of which at least one has to be there."""
    came = [part for part in parts if not part.lost]
    first = (came or parts)[0]
    return Request(
        first.request_id, first.partition, first.sent, first.deadline, first.appended, tuple(came), first.path
    )


# A backup computes one query before it has to: what a model does at its first batch alone, no promotion waits for.
#
# Kernels are chosen, memory is touched and modules are imported at a model's first batch: tens of milliseconds for a
# small torch module, which its first outputs after a failover would have waited for. So the first query that a backup
# reads is computed, updated and encoded on a state that the model makes anew, on the thread where models run. All of it
# is thrown away, whatever it comes to: nothing is sent, and the copy of the state is not touched.
#
# It takes memory for one more state for as long as it lasts, which is less than a primary needs.


_OPEN = 64  # queries of a join some of whose parts have been read


class WarmUp:
    """The one rehearsal of a member's process."""

    def __init__(self, place: str, model: StatefulModel, means: MemberContext, *, parts: int) -> None:
        """`place` begins what is logged; a query has come when so many `parts` of it have."""
        self._place = place
        self._model = model
        self._means = means
        self._parts = parts
        self._open: dict[str, dict[str, Delivery]] = {}  # by request id, and by whom the part came from
        self._over = False

    def look(self, records: Iterable[Record]) -> None:
        """Rehearse the first query that is whole among these and those before; once there was one, do nothing."""
        if self._over:
            return
        for record in records:
            request = self._whole(record)
            if request is not None:
                self.skip()
                self._means.models.submit(partial(self._rehearse, request), bool)
                return

    def skip(self) -> None:
        self._over = True
        self._open.clear()

    def _whole(self, record: Record) -> Request | None:
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
        except BaseException as error:  # noqa: BLE001 - user code; a primary says what a query does to it
            log.info("%s: a query was rehearsed and failed: %s", self._place, words_of(error), extra=about(request))
