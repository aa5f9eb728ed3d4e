"""One shard's logs without a pipeline: a primary that writes versions for real, and a backup that follows them.

Real are the topics (by the pipeline's own topic plan), capture, chunks, hashes, `StateWriter`, its acknowledgements,
tombstones and retained versions, and the backup's readers. There is no stage: nobody sends queries, so a version is
sealed at once; and its writer, the only one, takes it as durable when it is complete, without reading that back.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from agents.live.states.appender import Appender
from agents.live.states.log_reader import LogReader
from agents.live.states.mailbox import Mailbox
from agents.live.states.standby import StandbyReader
from agents.live.states.state_writer import RETAIN, StateWriter
from agents.live.topics import ensure
from checkpoint.capture import Capture
from checkpoint.logs import Logs
from checkpoint.retention import Retention
from checkpoint.versions import History
from lineage.errors import SpillwayError
from lineage.marks import INITIAL, Version
from lineage.replication import Base, Fence, Manifest
from topology.spec import PipelineSpec, StageSpec
from topology.topics import topic_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agents.live.states.log_reader import Read
    from agents.live.states.standby import Applied
    from checkpoint.capture import Captured
    from lineage.marks import Place
    from producers.connection import ClientSettings

STAGE = "learn"
PLACE: Place = (STAGE, 0)
_CHAIN = ((1, INITIAL),)
_NAME = "bench"
_WITHIN = 300.0  # seconds for one version, or one state to be read


def make_state(megabytes: float, tensors: int = 20) -> dict[str, Any]:
    random = np.random.default_rng(0)
    each = int(megabytes * 1_000_000 / tensors / 4)
    return {f"layer{number}.weight": random.random(each, np.float32) for number in range(tensors)}


def change(state: dict[str, Any], share: float, step: int) -> None:
    """Change a share of a state: a stretch of it, at a place that goes round with the steps; or all of it."""
    size = sum(array.size for array in state.values())
    left = max(1, round(share * size))
    at = step * left % size if left < size else 0
    while left > 0:
        first = 0
        for array in state.values():
            begin, end = max(first, at), min(first + array.size, at + left)
            if begin < end:
                array[begin - first : end - first] += np.float32(1e-3)
                left -= end - begin
                at = end
            first += array.size
        at = 0


def make_topics(settings: ClientSettings, pipeline: str) -> None:
    stage = StageSpec(name=STAGE, model="bench:Model", state="shared")
    ensure(settings, topic_plan(PipelineSpec(name=pipeline, slo=1.0, partitions=1, stages=(stage,))))


class Primary:
    """Captures a state's versions and writes them, one by one, in epoch 1. Use as a context."""

    def __init__(self, settings: ClientSettings, pipeline: str, retain: int = RETAIN) -> None:
        """The topics are there (`make_topics`) and empty. `retain`: as StateWriter's. Raises BrokerError."""
        self._mailbox = Mailbox()
        self._failure: SpillwayError | None = None
        self._complete: list[Manifest] = []
        self._captured: Captured | None = None
        self._retention = Retention()
        self._history = History(_CHAIN)
        self.capture = Capture()
        self.n = 0
        self.written_bytes = 0
        self._found(settings, pipeline)
        told = (self._mailbox.post, self._completed, self._failed)
        self._writer = StateWriter(settings, pipeline, PLACE, 1, *told, retention=self._retention, retain=retain)

    def _found(self, settings: ClientSettings, pipeline: str) -> None:
        appender = Appender(settings, pipeline, PLACE, self._mailbox.post, self._failed)
        try:
            acked: list[bool] = []
            appender.append(Fence(1, _NAME), lambda: acked.append(True))
            appender.append(Base(1, _NAME, INITIAL, _CHAIN), lambda: acked.append(True))
            self._until(lambda: len(acked) == 2)  # noqa: PLR2004 - the fence and the base
        finally:
            appender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def write(self, state: dict[str, Any]) -> Manifest:
        """Capture and write the next version; returns when its manifest is acknowledged, and it was said durable."""
        captured = self.capture.take(state)
        manifest = self.write_captured(captured)
        before, self._captured = self._captured, captured
        if before is not None:
            before.release()
        return manifest

    def write_captured(self, captured: Captured) -> Manifest:
        """Write a captured version as the next one; it stays its caller's to release."""
        self.n += 1
        version = Version(1, self.n)
        self._writer.write(captured, Manifest(version, _CHAIN, (), _NAME, at_us=time.time_ns() // 1000))
        self._writer.outputs_acked(version)
        self._until(lambda: bool(self._complete))
        manifest = self._complete.pop()
        self._retention.appended(manifest)
        self._writer.durable(version, self._history)
        self.written_bytes += manifest.written_bytes
        return manifest

    def _completed(self, manifest: Manifest) -> None:
        self._complete.append(manifest)

    def _failed(self, error: SpillwayError) -> None:
        self._failure = error

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _WITHIN
        while not condition():
            if self._failure is not None:
                raise self._failure
            if time.monotonic() > deadline:
                raise SpillwayError(f"version {self.n} was not written within {_WITHIN:g} s")
            if not self._mailbox.deliver():
                time.sleep(0.0002)


class Backup:
    """A new backup: reads the version log, then the state, and applies what is durable. Use as a context."""

    def __init__(self, settings: ClientSettings, pipeline: str) -> None:
        """Raises BrokerError where there is no cluster."""
        self._mailbox = Mailbox()
        self._failure: SpillwayError | None = None
        self._logs = Logs([PLACE])
        self._applied: list[Applied] = []
        post = self._mailbox.post
        self._standby = StandbyReader(settings, pipeline, PLACE, post, self._applied.append, self.failed)
        self._reader = LogReader(settings, pipeline, [PLACE], self, post)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._standby.close()

    @property
    def read_bytes(self) -> int:
        return self._standby.read_bytes

    def until_at(self, version: Version) -> Applied:
        """Wait until the copy is at a version. Raises what ended a reader, SpillwayError if it takes too long."""
        deadline = time.monotonic() + _WITHIN
        while not self._applied or self._applied[-1].version != version:
            if self._failure is not None:
                raise self._failure
            if time.monotonic() > deadline:
                raise SpillwayError(f"a backup did not get to {version} within {_WITHIN:g} s")
            if not self._mailbox.deliver():
                time.sleep(0.0005)
        return self._applied[-1]

    def records(self, batch: Sequence[Read]) -> None:
        for read in batch:
            if isinstance(read.record, Fence | Base | Manifest) and self._logs.take(PLACE, read.record):
                self._standby.heard(read.record, self._logs.log(PLACE).history)
        self._standby.durable(self._logs.newest_durable(PLACE))

    def caught_up(self, place: Place) -> None:
        self._logs.caught_up(place)
        self._standby.begin()
        self._standby.durable(self._logs.newest_durable(place))

    def fell_behind(self, place: Place) -> None:
        self._logs.fell_behind(place)

    def failed(self, error: SpillwayError) -> None:
        self._failure = error
