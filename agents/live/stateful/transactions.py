"""Versions whose outputs, chunks and manifest are one Kafka transaction (`replication: kafka-eos`).

Each reign has a transactional id of its own. A claimant takes the id of the reign that it follows before it fences, so
the broker aborts what that one's primary has open and voids what it still writes. A claimant that has lost meanwhile,
and comes late, aborts nothing of the newer reign's. What a zombie commits all the same is void behind the fence, and
its outputs are dead, as in every other mode. Inputs are in the manifest (`Contents.inputs`), and so in the transaction
as well. What is tombstoned goes with the next version. Whoever reads must read committed records alone.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException

from spillway.agents.live.states.sending import DeliveryError
from spillway.agents.live.states.state_writer import StateWriter
from spillway.agents.run import crash_points
from spillway.checkpoint.manifests import describe, seal
from spillway.producers.cluster import idempotent_producer
from spillway.producers.connection import TRANSACTIONAL
from spillway.producers.patience import flush, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from confluent_kafka import KafkaError

    from spillway.checkpoint.capture import Captured
    from spillway.lineage.replication import Manifest, Output
    from spillway.producers.connection import ClientSettings

_CONNECT_SECONDS: Final = 30.0
_WITHIN: Final = 60.0  # a broker that restarts is back by then
_SLICE: Final = 10.0  # of one call
_PROPERTIES: Final[dict[str, Any]] = {
    "linger.ms": 0,
    "acks": "all",
    "compression.type": "none",
    "message.max.bytes": 16 << 20,
    "queue.buffering.max.kbytes": 1 << 20,
    "transaction.timeout.ms": 15_000,  # a shard that has lost all its members holds up its readers for as long
    "batch.size": 1 << 20,
    "socket.nagle.disable": True,
    **TRANSACTIONAL,
}


class TransactionalSending:
    """Sends in transactions; what is sent while none is open goes with the next. For one thread, but for `__init__`."""

    in_flight = 0  # a commit waits for all of it
    full = False

    def __init__(self, settings: ClientSettings, topic: str, transactional_id: str) -> None:
        """Take the id: an older producer's open transaction is aborted. Raises BrokerError."""
        self._producer = idempotent_producer(
            settings, topic, _CONNECT_SECONDS, {**_PROPERTIES, "transactional.id": transactional_id}
        )
        self._id = transactional_id
        self.acked_bytes = 0  # so far
        self._open = False
        self._lost: list[str] = []  # why, of each record that the broker has not said to have
        self._later: list[tuple[str, int, bytes | None, Any]] = []
        self._call(lambda: self._producer.init_transactions(_SLICE), "begin")

    def begin(self) -> None:
        self._call(self._producer.begin_transaction, "begin")
        self._open = True
        later, self._later = self._later, []
        for record in later:
            self.send(*record)

    def send(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: Any,
        _acked: Callable[[], object] | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
    ) -> None:
        """Send a record (None: a tombstone) with the transaction. Raises DeliveryError."""
        if not self._open:
            self._later.append((topic, partition, key, value))
            return
        delivered = partial(self._delivered, 0 if value is None else memoryview(value).nbytes)
        while True:
            try:
                self._producer.produce(topic, value, key, partition, headers=list(headers), on_delivery=delivered)
            except BufferError:
                serve(self._producer, 0.01)
            except KafkaException as error:
                raise DeliveryError(f"a record of {self._id}", error.args[0].str()) from error
            else:
                return

    def commit(self) -> None:
        """Have all that was sent stand. Raises DeliveryError where it is not known whether it does.

        Commits are known that succeed and leave out what was not delivered: it counts what the broker says to have.
        """
        self._call(lambda: flush(self._producer, _SLICE), "send")
        if self._lost:
            raise DeliveryError(f"the transaction of {self._id}", f"{len(self._lost)} records: {self._lost[0]}")
        self._call(lambda: self._producer.commit_transaction(_SLICE), "commit")
        self._open = False

    def serve(self, seconds: float = 0.005) -> None:
        serve(self._producer, seconds)

    def _delivered(self, size: int, error: KafkaError | None, message: Any) -> None:
        self.acked_bytes += size
        if error is not None or message.offset() < 0:
            self._lost.append(f"{message.topic()}: {error.str() if error is not None else 'its offset is unknown'}")

    def _call(self, call: Callable[[], object], what: str) -> None:
        """Call until it succeeds, within a bound: of a lost connection, too, it is said that it can be tried again."""
        until = time.monotonic() + _WITHIN
        while True:
            try:
                call()
            except KafkaException as error:
                cause = error.args[0]
                if cause.retriable() and time.monotonic() < until:
                    continue
                raise DeliveryError(f"the transaction of {self._id} ({what})", cause.str()) from error
            else:
                return


def transactional_id(topic: str, partition: int, epoch: int) -> str:
    """The id of the transactions of a shard's reign, by where its chunks stand."""
    return f"{topic}.{partition}.{epoch}"


def take_over(settings: ClientSettings, topic: str, partition: int, epoch: int) -> None:
    """Abort what the primary of an older reign has open. Raises BrokerError.

    A claimant does so before it fences: nobody who reads committed records would see its fence behind an open
    transaction of one that died, until the broker gives that up.
    """
    TransactionalSending(settings, topic, transactional_id(topic, partition, epoch))


class TransactingWriter(StateWriter):
    """A state writer whose versions are transactions."""

    def _connect(self) -> Any:
        ident = transactional_id(self._state, self._partition, self._epoch)
        return TransactionalSending(self._settings, self._state, ident)

    def _write(self, captured: Captured, manifest: Manifest, pieces: dict[str, Any]) -> None:
        outputs: tuple[Output, ...] = pieces.pop("outputs")
        writing = self._chunks.write(manifest.version, captured)
        self._await(lambda: self._outputs >= manifest.version.n)
        crash_points.at("before-chunks")
        self._sending.begin()
        self._send_chunks(writing.records())
        sealed, spilled = seal(manifest, describe(captured, writing, **pieces), writing)
        self._send_chunks(spilled)
        crash_points.at("after-chunks")
        for output in outputs:
            self._sending.send(output.topic, output.partition, output.key or None, output.value, headers=output.headers)
        self._chunks.acknowledged(writing)
        self._append(sealed, writing)

    def _await_manifest(self, _acked: list[bool]) -> None:
        self._sending.commit()
