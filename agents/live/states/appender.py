"""Appends fences, bases, claims and yields, each once.

One thread with a producer of its own, so that none of them waits behind a state that is being written. Nobody appends a
key twice: after a fence that would move a record behind it, where it is void (`checkpoint.version_log`). Where it is
not known whether a record stands, `on_failed` is called and the process must end.
"""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, NamedTuple

from agents.live.states import crash_points
from agents.live.states.sending import DELIVERY_SECONDS, Sending
from agents.live.states.worker import Worker
from checkpoint import claims, version_log
from lineage.errors import CheckpointError
from lineage.replication import Base, Claim, Fence, Yield
from lineage.values.replication import encode
from topology.topics import control, versions

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.live.states.worker import Post
    from lineage.errors import SpillwayError
    from lineage.marks import Place
    from producers.connection import ClientSettings

Appended = Fence | Base | Claim | Yield


class _Append(NamedTuple):
    record: Appended
    key: str
    acked: Callable[[], object] | None


class Appender:
    """Appends for one place. It starts at once; `close` ends it, whatever is still on the way."""

    def __init__(
        self,
        settings: ClientSettings,
        pipeline: str,
        place: Place,
        post: Post,
        on_failed: Callable[[SpillwayError], object],
        *,
        delivery: float = DELIVERY_SECONDS,
    ) -> None:
        """`delivery`: seconds until an append counts as failed. Raises BrokerError where there is no cluster."""
        self._place = place
        self._control = control(pipeline)
        self._versions = versions(pipeline, place[0])
        self._appended: set[str] = set()
        self._wanted: queue.SimpleQueue[_Append | None] = queue.SimpleQueue()
        self._sending = Sending(settings, self._control, delivery=delivery)
        self._worker = Worker("appends", self._run, post, on_failed)
        self._worker.start()

    def append(self, record: Appended, acked: Callable[[], object] | None = None) -> None:
        """Append a record; `acked` is posted when the broker has it. By its owner's thread alone.

        Raises CheckpointError for one that was appended before, and WireError for one that cannot be.
        """
        key = claims.key(record) if isinstance(record, (Claim, Yield)) else version_log.key(record)
        if key in self._appended:
            raise CheckpointError(f"the record {key!r} was appended before; appended again it may count otherwise")
        encode(record)
        self._appended.add(key)
        self._wanted.put(_Append(record, key, acked))

    def close(self) -> None:
        """End the thread."""
        self._worker.stop()
        self._wanted.put(None)
        self._worker.join()

    def _run(self) -> None:
        while not self._worker.stopped:
            self._round()

    def _round(self) -> None:
        try:
            wanted = self._wanted.get(block=not self._sending.in_flight)
        except queue.Empty:
            self._sending.serve()
            return
        if wanted is None:
            return
        step = {Claim: "claim", Fence: "fence"}.get(type(wanted.record))
        if step is not None:
            crash_points.at(f"before-{step}")
        topic, partition = self._versions, self._place[1]
        if isinstance(wanted.record, (Claim, Yield)):
            topic, partition = self._control, 0

        def acked() -> None:
            if step is not None:
                crash_points.at(f"after-{step}")
            if wanted.acked is not None:
                self._worker.tell(wanted.acked)

        self._sending.send(topic, partition, wanted.key.encode(), encode(wanted.record), acked)
