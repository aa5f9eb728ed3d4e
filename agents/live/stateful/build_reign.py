"""Putting a reign together: a machine with the base's state, its core, its writer, and what was read of the input."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from spillway.agents.live.stage.build import build_stateful_core
from spillway.agents.live.stateful.publishing import Publishing, Where
from spillway.agents.live.stateful.replaying import read_taken, replay
from spillway.agents.live.stateful.transactions import TransactingWriter
from spillway.agents.live.states.state_writer import StateWriter
from spillway.agents.models.placement import Placement, arrays, refuse_unfit
from spillway.agents.models.stateful import Machine, a_keys_state
from spillway.agents.run.primary import Primary
from spillway.checkpoint.capture import Capture
from spillway.checkpoint.layout import CHUNK_BYTES
from spillway.checkpoint.modes import MODES
from spillway.checkpoint.pages import Pages
from spillway.checkpoint.reign import Reign
from spillway.lineage.errors import BrokerError, ModelError
from spillway.lineage.replication import Manifest
from spillway.topology.topics import table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.agents.core.stateful_stage import StatefulCore
    from spillway.agents.live.stage.config import StageProcessConfig
    from spillway.agents.live.stateful.context import MemberContext
    from spillway.agents.live.stateful.copies import Copies
    from spillway.agents.live.states.sending import Sending
    from spillway.agents.metrics import StateMetrics
    from spillway.agents.models.stateful import StatefulModel
    from spillway.agents.run.shard_input import ShardInput
    from spillway.checkpoint.capture import Captured
    from spillway.checkpoint.logs import Logs
    from spillway.checkpoint.reign import Write
    from spillway.checkpoint.retention import Retention
    from spillway.checkpoint.versions import History
    from spillway.lineage.marks import Place, Version
    from spillway.lineage.replication import Batch, Contents, Entry, Output

log = logging.getLogger(__name__)


# Seconds for which tombstones gather: two records of each small version, each of which wakes all who read the logs.
_TIDY_SECONDS = 0.5


class _Nothing:
    """A copy of nothing: of a mode that logs, before the first copy, a version is its batches alone.

    What is too large for a manifest is spilled in pieces of `chunk_bytes`, batches too, so these are of the usual size.
    """

    entries = ()
    values: dict[str, Any] = {}  # noqa: RUF012 - empty for ever
    blocks = ()
    pages = ()
    chunk_bytes = CHUNK_BYTES
    own_bytes = 0


_NOTHING: Any = _Nothing()


class VersionWriter:
    """Writes the versions of one epoch: from the core's orders to a `StateWriter`'s. All methods are the loop's."""

    def __init__(
        self,
        make: Callable[[Callable[[Manifest], object]], StateWriter],
        *,
        claimant: str,
        history: Callable[[], History],
        completed: Callable[[Version], object],
        figures: StateMetrics | None,
        logs: bool,
        release: Callable[[Captured], None],
    ) -> None:
        """`make` makes the writer from what it calls for each complete version.

        `history`: of the shard, as the logs have it; it has this epoch's base. `completed` is called on the loop.
        `logs`: versions without a copy name the chunks of the newest copy again (`spillway.checkpoint.modes`);
        `release` is then given the copies that none names any more. In other modes the reign says what is released.
        """
        self._claimant = claimant
        self._history = history
        self._done = completed
        self._figures = figures
        self._durable: Version | None = None
        self._tidying: asyncio.TimerHandle | None = None
        self._logs = logs
        self._copy: Captured = _NOTHING
        self._let_go: list[Captured] = []  # of a mode that logs: copies that no version will name any more
        self._release = release
        self._writer: StateWriter | None = make(self._completed)  # None once this is closed

    @property
    def acked_bytes(self) -> int:
        """What the broker has of what was sent so far; from any thread."""
        writer = self._writer
        return 0 if writer is None else writer.acked_bytes

    def write(self, order: Write[Captured], outputs: tuple[Output, ...]) -> None:
        manifest = Manifest(
            order.version, self._history().links, order.requires, self._claimant, at_us=time.time_ns() // 1000
        )
        later = order.version.n - order.state_n
        pieces: dict[str, Any] = {
            "batches": order.batches, "inputs": order.inputs, "outputs": outputs, "later": later
        }  # fmt: skip
        if order.what is not None:
            if self._logs and self._copy is not _NOTHING:
                self._let_go.append(self._copy)
            self._copy = order.what
        if self._writer is not None:
            self._writer.write(self._copy, manifest, **pieces)

    def seal(self, version: Version) -> None:
        if self._writer is not None:
            self._writer.outputs_acked(version)

    def durable(self, version: Version) -> None:
        """Note the newest durable version of this epoch: what is older may be tombstoned, and is before long."""
        if self._durable is None or version.n > self._durable.n:
            self._durable = version
            if self._tidying is None and self._writer is not None:
                self._tidying = asyncio.get_running_loop().call_later(_TIDY_SECONDS, self._tidy)

    def _tidy(self) -> None:
        self._tidying = None
        if self._durable is not None and self._writer is not None:
            self._writer.durable(self._durable, self._history())

    def close(self) -> None:
        self._done = bool  # figures are asked of a closed writer, too, and its reign must not be kept for them
        if self._tidying is not None:
            self._tidying.cancel()
        writer, self._writer = self._writer, None
        if writer is not None:
            asyncio.get_running_loop().run_in_executor(None, writer.close)

    def _completed(self, manifest: Manifest) -> None:
        if self._writer is None:
            return
        if self._figures is not None:
            self._figures.written += manifest.written_bytes
        let_go, self._let_go = self._let_go, []
        for copy in let_go:
            self._release(copy)
        self._done(manifest.version)


_SPARE_AFTER = 2.0  # seconds from a reign's beginning to the making of the next one's connection: first things first


class Reigns:
    """Makes the reigns of one member, whose config has the shard's number as the replica's."""

    def __init__(
        self,
        config: StageProcessConfig,
        name: str,
        place: Place,
        model: StatefulModel,
        logs: Logs,
        means: MemberContext,
    ) -> None:
        self._config = config
        self._name = name
        self._place = place
        self._model = model
        self._logs = logs
        self._means = means
        self._mode = MODES[config.spec.required_state.replication]
        self._loop = asyncio.get_running_loop()
        self._placement = Placement()
        self._spare: Sending | None = None  # for the next reign's writer
        self._connect_ahead()

    async def refuse_unfit(self, entries: Sequence[Entry]) -> None:
        """Raise UnfitStateError where the model cannot go on from a state of these entries."""
        name = f"stage {self._place[0]!r}: model {self._config.spec.model!r}"

        def look() -> ModelError | None:
            try:
                refuse_unfit(name, self._model, entries)
            except ModelError as error:
                return error
            return None

        error = await self._means.models.call(look)
        if error is not None:
            raise error

    async def machine(self, topic: str, state: Any, version: Version, contents: Contents) -> Machine:
        """Make a machine with the state of a version (None: the first one), on the model's thread.

        Where the version has batches that its chunks do not have, they are computed again; `topic` is the input's.
        """
        model, place, means = self._model, f"stage {self._place[0]!r}", self._means
        batches: tuple[Batch, ...] = contents.batches[len(contents.batches) - contents.later :]
        settings = self._config.settings.confluent()
        records = await asyncio.to_thread(read_taken, settings, topic, batches) if batches else {}

        def make() -> Machine:
            began = time.monotonic()
            self._placement.learn(model)
            of_key = a_keys_state(state) if state and hasattr(model, "key") else None
            if of_key is not None:  # of another state it was looked at before it was begun with
                refuse_unfit(place, model, arrays(of_key))
            given = state if state is None else self._placement.put(state, keyed=hasattr(model, "key"))
            machine = Machine(place, model, given, version.n - contents.later)
            if batches:
                count = replay(machine, means.work, means.intake, batches, records)
                log.info("%s: computed %d requests again in %.3f s", self._name, count, time.monotonic() - began)
            return machine

        return await means.models.call(make)

    def begin(
        self,
        epoch: int,
        base: Version,
        contents: Contents,
        machine: Machine,
        *,
        shard_input: ShardInput,
        copies: Copies,
        retention: Retention,
    ) -> Primary:
        """Put the driver of a reign together, and have it remember and take what was read."""
        guard = self._means.work.guard
        guard.look({each: shard_input.position(each) for each in shard_input.partitions})
        self._means.suspects.deaths = guard.deaths
        spec = self._config.spec
        of_epoch: Reign[Any] = Reign(self._place, epoch, base, self._mode, spec.required_state.checkpoint_every)
        core = build_stateful_core(self._config, reign=of_epoch, logs=self._logs)
        pages = Pages(CHUNK_BYTES, count=len(contents.pages) or 1) if machine.kind == "keyed" else None
        capture = Capture(pages=pages, guard=threading.Lock())
        writer = VersionWriter(
            partial(self._writer, epoch, base, copies, retention),
            claimant=self._name,
            history=lambda: self._logs.log(self._place).history,
            completed=lambda version: primary.completed(version),  # noqa: PLW0108 - it is made below
            figures=self._means.metrics.state,
            logs=self._mode.logs,
            release=lambda copy: self._means.copies.submit(copy.release, bool),
        )
        if self._means.metrics.state is not None:
            self._means.metrics.state.sent = lambda: writer.acked_bytes
        publishing = self._publishing(epoch, core, machine)
        primary = Primary(core, machine, capture, writer, self._means, shard_input.at, publishing)
        primary.resend(contents.outputs)
        primary.feed.add(shard_input.begin(core, contents.inputs))
        self._show(core)
        if publishing is not None:
            publishing.begin()
        return primary

    def _publishing(self, epoch: int, core: StatefulCore, machine: Machine) -> Publishing | None:
        spec, pipeline = self._config.spec, self._config.pipeline.spec
        if not spec.publish:
            return None
        topic, shard = table(pipeline.name, spec.name), self._place[1]
        where = Where(topic, pipeline.partitions, shard, spec.shards, pipeline.limits.merged(), spec.name)
        reign = core.reign
        return Publishing(where, epoch, core.durable_n, lambda: reign.recorded, machine, self._means)

    def _writer(
        self,
        epoch: int,
        base: Version,
        copies: Copies,
        retention: Retention,
        completed: Callable[[Manifest], object],
    ) -> StateWriter:
        kind = TransactingWriter if self._mode.transacts else StateWriter
        spare, self._spare = self._spare, None
        self._loop.call_later(_SPARE_AFTER, self._connect_ahead)
        return kind(
            self._config.settings,
            self._config.pipeline.spec.name,
            self._place,
            epoch,
            self._loop.call_soon_threadsafe,
            completed,
            self._means.crashed,
            retention=retention,
            present=copies.present,
            base=(base, copies.named),
            sending=spare,
        )

    def _connect_ahead(self) -> None:
        if not self._mode.transacts and self._spare is None:
            self._loop.run_in_executor(None, self._connect)

    def _connect(self) -> None:
        try:
            self._spare = StateWriter.connect(self._config.settings, self._config.pipeline.spec.name, self._place[0])
        except BrokerError as error:  # the reign makes its own, then
            log.info("%s: no spare connection could be made; connecting at takeover instead: %s", self._name, error)

    def _show(self, core: StatefulCore) -> None:
        metrics, stats = self._means.metrics, core.stats  # which outlast the reign, as the rest of it must not
        metrics.depth = lambda: core.depth
        metrics.received = lambda: stats.received
        metrics.duplicates = lambda: stats.duplicates
