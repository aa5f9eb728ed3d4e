"""An operator's reign over one shard: claim, fence, base as any member's (`checkpoint.promotion`), then one version.

Nothing here is an exception to the protocol: a claim in `<p>.control`, a fence, a base; chunks, then the manifest after
all of them are acknowledged (rules 2 to 5). Whoever reads the logs afterwards finds a version like any other, and the
next primary starts from it. A member that begins to serve meanwhile fences a newer epoch: then the version that is
being written is void, nothing has changed, and the operator is told. A reign that ends before its manifest leaves
the shard as it was, an epoch further.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from agents.live.operator.histories import Histories
from agents.live.operator.partitions import PATIENCE, Partitions
from checkpoint.claims import key as claim_key
from checkpoint.promotion import Append, Load, Member, StandDown
from checkpoint.version_log import key as record_key
from lineage.errors import BrokerError, CheckpointError
from lineage.ids import new_request_id
from lineage.replication import Base, Claim, Fence, Manifest
from lineage.values.replication import ReplicationDecoder, encode
from producers.cluster import idempotent_producer
from producers.schema_log import SchemaLog
from topology import topics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from checkpoint.chunks import Chunk
    from checkpoint.promotion import Action
    from lineage.marks import Place
    from producers.connection import ClientSettings
    from topology.spec import PipelineSpec

_QUEUED_KILOBYTES: Final = 32 << 10  # of chunks on the way: memory stays bounded, however large the state


class Reign:
    """One attempt. Raises CheckpointError where somebody else takes the shard, BrokerError where the cluster fails."""

    def __init__(
        self, settings: ClientSettings, spec: PipelineSpec, place: Place, reason: str, *, past_damage: bool = False
    ) -> None:
        """Read all logs to their ends. `past_damage`: go on without what is damaged in the shard's version log."""
        self.place = place
        self.name = f"{spec.name}.{place[0]}.{place[1]}.operator-{new_request_id()[:12]}"
        self._reason = reason
        self._control = topics.control(spec.name)
        self._versions = topics.versions(spec.name, place[0])
        self._state = topics.state(spec.name, place[0])
        self._failures: list[str] = []
        schemas = SchemaLog(settings, spec.name)
        self.histories = Histories(spec, ReplicationDecoder(schemas.open()))
        self._member = Member(place, self.name, self.histories.claims, self.histories.logs)
        self._counted: dict[str, bool] = {}  # of our own records in the version log, by key
        self._partitions = Partitions(settings, self.histories.partitions)
        options = {"linger.ms": 2, "queue.buffering.max.kbytes": _QUEUED_KILOBYTES}
        self._producer = idempotent_producer(settings, self._control, PATIENCE, options)
        try:
            for message in self._partitions.to_the_end():
                self._take(message)
        except BaseException:
            self.close()
            raise
        self.histories.reached(self.histories.partitions)
        self._passed = self.histories.logs.accept(place) if past_damage else []

    def begin(self) -> Load:
        action = self._member.wanted()
        until = time.monotonic() + PATIENCE
        while not isinstance(action, Load):
            if isinstance(action, StandDown):
                raise self._overtaken("before the reign began")
            if action is not None:
                self._append(action)
            action = self._next(until, "its own claim, fence and base")
        return action

    def write(self, chunks: Iterable[Chunk]) -> None:
        """Append records to the state topic; they may still be on their way when this returns."""
        for key, value in chunks:
            self._produce(self._state, self.place[1], key, bytes(value))

    def complete(self, manifest: Manifest) -> None:
        """Append the manifest once all else is acknowledged, and read it back: from then on the version is there."""
        self._acknowledged()
        links = self.histories.logs.log(self.place).history.links
        whole = replace(manifest, chain=links, claimant=self.name, at_us=_now_us())
        name = record_key(whole)
        self._produce(self._versions, self.place[1], name.encode(), encode(whole))
        self._acknowledged()
        until = time.monotonic() + PATIENCE
        action = None
        while name not in self._counted and not isinstance(action, StandDown):
            action = self._next(until, "its manifest")
        if not self._counted.get(name, False):  # a fence that was read first makes it void, wherever it is
            raise self._overtaken("before its version was complete")
        for damage in self._passed:  # from now on nobody has to wait for what it may have said
            self._produce(self._versions, self.place[1], damage.key, None)
        self._acknowledged()

    def close(self) -> None:
        self._producer.flush(1)
        self._partitions.close()

    # Inside ----------------------------------------------------------------------------------------------------

    def _append(self, action: Action) -> None:
        assert isinstance(action, Append)
        record = action.record
        if isinstance(record, Claim):
            record = replace(record, at_us=_now_us(), reason=self._reason)
            self._produce(self._control, 0, claim_key(record).encode(), encode(record))
        else:
            record = replace(record, at_us=_now_us()) if isinstance(record, Fence) else record
            self._produce(self._versions, self.place[1], record_key(record).encode(), encode(record))
        self._acknowledged()

    def _next(self, until: float, what: str) -> Action | None:
        if time.monotonic() > until:
            raise BrokerError(f"{what} did not come back on {self._versions} or {self._control} in time")
        actions = [action for message in self._partitions.read() if (action := self._take(message)) is not None]
        # Of a member there is one thing to do at a time; only being overtaken can come on top.
        return next((each for each in actions if isinstance(each, StandDown)), actions[-1] if actions else None)

    def _take(self, message: Any) -> Action | None:
        taken = self.histories.take(message)
        if taken is None:
            return None
        record, counts = taken
        if isinstance(record, Claim):
            return self._member.heard_claim(record, won=counts)
        if (message.topic(), message.partition()) != (self._versions, self.place[1]):
            return None
        if isinstance(record, Base | Manifest) and record.claimant == self.name:
            self._counted[record_key(record)] = counts
        return self._member.heard(record, counts=counts)

    def _produce(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._producer.produce(topic, value, key, partition, on_delivery=self._reported)
            except BufferError:
                if time.monotonic() > until:
                    raise self._lost("no acknowledgement in time") from None
                self._producer.poll(0.05)
                continue
            self._producer.poll(0)
            return

    def _acknowledged(self) -> None:
        left = self._producer.flush(PATIENCE)
        if left or self._failures:
            raise self._lost(self._failures[0] if self._failures else "no acknowledgement in time")

    def _reported(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failures.append(error.str())

    def _lost(self, why: str) -> BrokerError:
        return BrokerError(
            f"{self.place[0]}/{self.place[1]}: the cluster did not take all records: {why}; look with 'spillway state "
            "list' whether the version is there before you try again"
        )

    def _overtaken(self, when: str) -> CheckpointError:
        epoch = self.histories.claims.epoch(self.place)
        return CheckpointError(
            f"{self.place[0]}/{self.place[1]}: {self.histories.claims.winner(self.place)!r} took the shard over in "
            f"epoch {epoch} {when}, so nothing has changed; stop serving the pipeline first"
        )


def _now_us() -> int:
    return time.time_ns() // 1_000
