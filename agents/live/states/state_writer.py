"""Writes the versions of one reign: chunks, then their manifest (rules 2, 4 and 5).

One thread with a producer of its own writes one version at a time, in this order: the chunks that the log does not
hold, and the contents where they are large; when all of them are acknowledged, and the caller has said that the outputs
of the batches are (`outputs_acked`), the manifest, once; when that is, `on_complete` is posted. What is in flight is
bounded in bytes, so a state of any size streams in bounded memory.

Once the caller says that a version is `durable`, what nobody needs any more is tombstoned: chunks by
`ChunkLog.durable`, manifests by `Retention.obsolete`, but for the `retain` versions before it, which an operator may go
back to.

Where it is not known whether a record stands, `on_failed` is posted, nothing more is written, and the process must end.
The captured version is only read, and no longer once its manifest is complete; its owner releases it.
"""

from __future__ import annotations

import queue
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.live.states.sending import Sending
from spillway.agents.live.states.worker import Worker
from spillway.agents.run import crash_points
from spillway.checkpoint import version_log
from spillway.checkpoint.chunks import ChunkLog, encode_key
from spillway.checkpoint.manifests import describe, seal
from spillway.checkpoint.retention import Rewindable
from spillway.lineage.errors import CheckpointError
from spillway.lineage.values.replication import encode
from spillway.topology.topics import state, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from spillway.agents.live.states.worker import Post
    from spillway.checkpoint.capture import Captured
    from spillway.checkpoint.chunks import Writing
    from spillway.checkpoint.retention import Retention
    from spillway.checkpoint.versions import History
    from spillway.lineage.errors import SpillwayError
    from spillway.lineage.marks import Place, Version
    from spillway.lineage.replication import ChunkKey, Manifest
    from spillway.producers.connection import ClientSettings

RETAIN: Final = 1
"""Where every version changes the whole state, each that is kept is another state in the log, beside the newest one and
the one whose tombstones are in the newest segment, which Kafka never compacts."""
_NUDGE_SECONDS: Final = 0.1


class _ClosedError(Exception):
    """The writer was closed in the middle of a version."""


class StateWriter:
    """Writes for one place in one epoch. It starts at once; `close` ends it, in the middle of a version if it must.

    All methods are for its owner's thread, to which `post` brings the callbacks.
    """

    def __init__(
        self,
        settings: ClientSettings,
        pipeline: str,
        place: Place,
        epoch: int,
        post: Post,
        on_complete: Callable[[Manifest], object],
        on_failed: Callable[[SpillwayError], object],
        *,
        retention: Retention,
        present: Iterable[ChunkKey] = (),
        base: tuple[Version, Collection[ChunkKey]] | None = None,
        retain: int = RETAIN,
        sending: Sending | None = None,
    ) -> None:
        """`retention`: fed, by its owner, with all that is read of the shard's version log.

        `present`: the chunk keys that the partition holds. `base`: what the epoch starts from and the chunks that it
        names, to be kept for operators. `sending`: a connection that was made ahead, by `connect`; a new one, which the
        thread makes, has no producer id for up to half a second.
        """
        self._versions, self._state = versions(pipeline, place[0]), state(pipeline, place[0])
        self._partition = place[1]
        self._epoch = epoch
        self._on_complete = on_complete
        self._retention = retention
        self._chunks = ChunkLog(epoch, present)
        self._kept = Rewindable(retain)
        if base is not None:
            self._kept.complete(*base)
        self._gone: set[str] = set()  # manifests that were tombstoned
        self._outputs = -1  # up to which n the outputs are acknowledged
        self._writing: Version | None = None
        self._nudge = threading.Event()
        self._jobs: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._settings = settings
        self._sending: Any = sending  # None until the thread has connected
        self._worker = Worker("state-writer", self._run, post, on_failed)
        self._worker.start()

    @staticmethod
    def connect(settings: ClientSettings, pipeline: str, stage: str) -> Sending:
        """Make a connection for a writer to come. Blocks; raises BrokerError where there is no cluster."""
        return Sending(settings, state(pipeline, stage), also=(versions(pipeline, stage),))

    def _connect(self) -> Any:
        return Sending(self._settings, self._state)

    @property
    def acked_bytes(self) -> int:
        return 0 if self._sending is None else int(self._sending.acked_bytes)

    def write(self, captured: Captured, manifest: Manifest, **pieces: Any) -> None:
        """Begin to write `manifest.version`; `manifest` has what `seal` does not fill in, `pieces` are `describe`'s.

        Raises CheckpointError while another version is being written.
        """
        if self._writing is not None:
            raise CheckpointError(
                f"{manifest.version} cannot be written while {self._writing} is being written: write one at a time"
            )
        self._writing = manifest.version
        self._jobs.put(partial(self._write, captured, manifest, pieces))

    def outputs_acked(self, version: Version) -> None:
        """Note that the outputs of all batches up to a version are acknowledged."""
        self._outputs = max(self._outputs, version.n)
        self._nudge.set()

    def durable(self, version: Version, history: History) -> None:
        """Note that a version of this reign, which was complete, is durable; `history` is the shard's."""
        self._jobs.put(partial(self._tidy, version, self._retention.obsolete(history, version)))

    def close(self) -> None:
        """End the thread; what was not handed over by then is not written."""
        self._worker.stop()
        self._nudge.set()
        self._jobs.put(lambda: None)
        self._worker.join()

    def _run(self) -> None:
        if self._sending is None:
            self._sending = self._connect()
        try:
            while not self._worker.stopped:
                self._next()()
        except _ClosedError:
            return

    def _next(self) -> Callable[[], object]:
        try:
            return self._jobs.get(block=not self._sending.in_flight)
        except queue.Empty:
            return self._sending.serve  # type: ignore[no-any-return]

    def _write(self, captured: Captured, manifest: Manifest, pieces: dict[str, Any]) -> None:
        writing = self._chunks.write(manifest.version, captured)
        crash_points.at("before-chunks")
        self._send_chunks(writing.records())
        sealed, spilled = seal(manifest, describe(captured, writing, **pieces), writing)
        self._send_chunks(spilled)
        self._await(lambda: not self._sending.in_flight)
        crash_points.at("after-chunks")
        self._await(lambda: self._outputs >= manifest.version.n)
        self._chunks.acknowledged(writing)
        self._append(sealed, writing)

    def _send_chunks(self, records: Iterable[tuple[bytes, Any]]) -> None:
        for count, (key, value) in enumerate(records):
            if count:
                crash_points.at("amid-chunks")
            while self._sending.full:
                self._await(lambda: not self._sending.full)
            # librdkafka copies; it takes the array that a view shows, but no view.
            self._sending.send(self._state, self._partition, key, value.obj if isinstance(value, memoryview) else value)

    def _append(self, sealed: Manifest, writing: Writing) -> None:
        crash_points.at("before-manifest")
        acked: list[bool] = []
        key = version_log.key(sealed).encode()
        self._sending.send(self._versions, self._partition, key, encode(sealed), lambda: acked.append(True))
        crash_points.at("after-manifest")
        self._await_manifest(acked)
        crash_points.at("before-ack")
        self._kept.complete(sealed.version, writing.named())
        self._worker.tell(self._completed, sealed)
        crash_points.at("after-ack")

    def _await_manifest(self, acked: list[bool]) -> None:
        self._await(lambda: acked)

    def _completed(self, sealed: Manifest) -> None:
        self._writing = None
        self._on_complete(sealed)

    def _tidy(self, version: Version, obsolete: list[str]) -> None:
        retained = self._kept.durable(version)
        for key in self._chunks.durable(version, retained):
            self._sending.send(self._state, self._partition, encode_key(key), None)
        kept = {f"manifest/{one.epoch}/{one.n}" for one in retained}
        going = [name for name in obsolete if name not in kept]
        for name in going:
            if name not in self._gone:
                self._sending.send(self._versions, self._partition, name.encode(), None)
        self._gone = set(going)  # until the tombstones are read back, and `obsolete` gives them no more

    def _await(self, condition: Callable[[], object]) -> None:
        while not condition():
            if self._worker.stopped:
                raise _ClosedError
            if self._sending.in_flight:
                self._sending.serve()
            else:
                self._nudge.wait(_NUDGE_SECONDS)
                self._nudge.clear()
