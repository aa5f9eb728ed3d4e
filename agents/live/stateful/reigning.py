"""Putting a reign together: a machine with the base's state, its core, its writer, and what was read of the input."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from agents.live.stage.parts import build_stateful_core
from agents.live.stateful.primary import Primary
from agents.live.stateful.replaying import read_taken, replay
from agents.live.stateful.transactions import TransactingWriter
from agents.live.stateful.writing import VersionWriter
from agents.live.states.state_writer import StateWriter
from agents.models.placement import Placement
from agents.models.stateful import Machine
from agents.models.unfit import arrays, refuse_unfit
from checkpoint.capture import Capture
from checkpoint.layout import CHUNK_BYTES
from checkpoint.modes import MODES
from checkpoint.pages import Pages
from checkpoint.reign import Reign
from lineage.errors import BrokerError, ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agents.core.stateful_stage import StatefulCore
    from agents.live.stage.config import StageProcessConfig
    from agents.live.stateful.copies import Copies
    from agents.live.stateful.means import Means
    from agents.live.stateful.reading import ShardInput
    from agents.live.states.sending import Sending
    from agents.models.stateful import StatefulModel
    from checkpoint.logs import Logs
    from checkpoint.retention import Retention
    from lineage.marks import Place, Version
    from lineage.replication import Batch, Contents, Entry, Manifest

log = logging.getLogger(__name__)

_SPARE_AFTER = 2.0  # seconds from a reign's beginning to the making of the next one's connection: first things first


class Reigns:
    """Makes the reigns of one member."""

    def __init__(
        self, config: StageProcessConfig, name: str, place: Place, model: StatefulModel, logs: Logs, means: Means
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
        looked: asyncio.Future[None] = self._loop.create_future()
        name = f"stage {self._place[0]!r}: model {self._config.spec.model!r}"

        def look() -> ModelError | None:
            try:
                refuse_unfit(name, self._model, entries)
            except ModelError as error:
                return error
            return None

        def tell(error: ModelError | None) -> None:
            if error is None:
                looked.set_result(None)
            else:
                looked.set_exception(error)

        self._means.models.submit(look, tell)
        await looked

    async def machine(self, topic: str, state: Any, version: Version, contents: Contents) -> Machine:
        """Make a machine with the state of a version (None: the first one), on the model's thread.

        Where the version has batches that its chunks do not have, they are computed again; `topic` is the input's.
        """
        made: asyncio.Future[Machine] = self._loop.create_future()
        model, place, means = self._model, f"stage {self._place[0]!r}", self._means
        batches: tuple[Batch, ...] = contents.batches[len(contents.batches) - contents.later :]
        settings = self._config.settings.confluent()
        records = await asyncio.to_thread(read_taken, settings, topic, batches) if batches else {}

        def make() -> Machine:
            began = time.monotonic()
            self._placement.learn(model)
            if state and hasattr(model, "key"):  # of another state it was looked at before it was begun with
                refuse_unfit(place, model, arrays(next(iter(state.values()))))
            given = state if state is None else self._placement.put(state, keyed=hasattr(model, "key"))
            machine = Machine(place, model, given, version.n - contents.later)
            if batches:
                count = replay(machine, means.work, means.intake, batches, records)
                log.info("%s: computed %d requests again in %.3f s", self._name, count, time.monotonic() - began)
            return machine

        def hand_over(machine: Machine) -> None:
            if not made.done():  # whoever waited may have been overtaken
                made.set_result(machine)

        means.models.submit(make, hand_over)
        return await made

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
        period: float,
    ) -> Primary:
        """Put the driver of a reign together, and have it remember and take what was read."""
        guard = self._means.work.guard
        guard.look({each: shard_input.place(each, {}).position for each in shard_input.partitions})
        self._means.suspects.deaths = guard.deaths
        core = self._core(epoch, base, period)
        capture = Capture(pages=_pages(contents) if machine.kind == "keyed" else None, guard=threading.Lock())

        def completed(version: Version) -> None:
            primary.completed(version)

        writer = VersionWriter(
            self._writer(epoch, base, copies, retention),
            claimant=self._name,
            history=lambda: self._logs.log(self._place).history,
            completed=completed,
            figures=self._means.metrics.state,
            logs=self._mode.logs,
            release=lambda copy: self._means.copies.submit(copy.release, _nothing),
            crashed=self._means.crashed,
        )
        if self._means.metrics.state is not None:
            self._means.metrics.state.sent = lambda: writer.acked_bytes
        primary = Primary(core, machine, capture, writer, self._means, shard_input.at)
        primary.resend(contents.outputs)
        primary.feed.add(shard_input.since(_remember(core, contents, shard_input)))
        self._show(core)
        return primary

    def _core(self, epoch: int, base: Version, period: float) -> StatefulCore:
        config, spec = self._config, self._config.spec
        reign: Reign[Any] = Reign(self._place, epoch, base, self._mode, spec.required_state.checkpoint_every)
        where = (config.pipeline, spec, self._place[1])
        return build_stateful_core(*where, config.policy, reign=reign, logs=self._logs, period=period)

    def _writer(
        self, epoch: int, base: Version, copies: Copies, retention: Retention
    ) -> Callable[[Callable[[Manifest], object]], StateWriter]:
        named, present = copies.named, copies.present
        kind = TransactingWriter if self._mode.transacts else StateWriter
        spare, self._spare = self._spare, None
        self._loop.call_later(_SPARE_AFTER, self._connect_ahead)

        def make(completed: Callable[[Manifest], object]) -> StateWriter:
            return kind(
                self._config.settings,
                self._config.pipeline.spec.name,
                self._place,
                epoch,
                self._loop.call_soon_threadsafe,
                completed,
                self._means.crashed,
                retention=retention,
                present=present,
                base=(base, named),
                sending=spare,
            )

        return make

    def _connect_ahead(self) -> None:
        if not self._mode.transacts and self._spare is None:
            self._loop.run_in_executor(None, self._connect)

    def _connect(self) -> None:
        try:
            self._spare = StateWriter.connect(self._config.settings, self._config.pipeline.spec.name, self._place[0])
        except BrokerError as error:  # the reign makes its own, then
            log.info("%s: no connection was made ahead: %s", self._name, error)

    def _show(self, core: StatefulCore) -> None:
        metrics = self._means.metrics
        metrics.depth = lambda: core.depth
        metrics.received = lambda: core.stats.received
        metrics.duplicates = lambda: core.stats.duplicates


def _remember(core: StatefulCore, contents: Contents, shard_input: ShardInput) -> dict[int, int]:
    """Have the core start on its partitions as the base has them; the positions from which on it takes records."""
    positions = {}
    known = {place.partition: place for place in contents.inputs}
    for partition in shard_input.partitions:
        place = shard_input.place(partition, known)
        spans = core.assign_place(place)
        positions[partition] = place.position
        for delivery in shard_input.remembered(partition, place.position, spans):
            core.remember(delivery)
    return positions


def _nothing(_result: object) -> None:
    """A released copy has nothing to say."""


def _pages(contents: Contents) -> Pages:
    return Pages(CHUNK_BYTES, count=len(contents.pages) or 1)
