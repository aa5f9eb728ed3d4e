"""Putting a member's process together from its pipeline's spec."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from agents.core.input_tail import TAIL_RECORDS
from agents.core.policies import period_of
from agents.live.clock import Clock
from agents.live.groups import member_of
from agents.live.metrics import StageMetrics
from agents.live.stage.emission import Emission
from agents.live.stage.intake import Intake
from agents.live.stage.memory import Memory
from agents.live.stage.output import Output
from agents.live.stage.parts import build_stateful_core, build_view, stage_signature
from agents.live.stage.planner import Planner
from agents.live.stage.tally import Tally
from agents.live.stage.user_functions import UserFunctions
from agents.live.state_metrics import StateFigures, marks_histogram
from agents.live.stateful.copies import Copies
from agents.live.stateful.member import ShardMember
from agents.live.stateful.primary import Means, Primary
from agents.live.stateful.reading import ShardInput
from agents.live.stateful.replaying import read_taken, replay
from agents.live.stateful.roles import Roles
from agents.live.stateful.threads import Thread
from agents.live.stateful.transactions import TransactingWriter
from agents.live.stateful.work import StatefulWork
from agents.live.stateful.writing import VersionWriter
from agents.live.states.appender import Appender
from agents.live.states.beats import Beats, Standing
from agents.live.states.log_reader import LogReader
from agents.live.states.standby import StandbyReader
from agents.live.states.state_writer import StateWriter
from agents.models.stateful import Machine
from checkpoint.capture import Capture
from checkpoint.layout import CHUNK_BYTES
from checkpoint.leases import Lease
from checkpoint.logs import Logs
from checkpoint.modes import MODES
from checkpoint.pages import Pages
from checkpoint.promotion import Role
from checkpoint.reign import Reign
from lineage.errors import SpillwayError
from lineage.marks import Version
from lineage.values.codec import Decoder
from lineage.values.replication import ReplicationDecoder
from topology import topics
from topology.limits import merge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agents.core.stateful_stage import StatefulCore
    from agents.live.stage.config import StageProcessConfig
    from agents.live.stage.plan_feed import Word
    from agents.live.states.standby import Applied
    from agents.models.stateful import StatefulModel
    from lineage.replication import Batch, Contents, Manifest
    from producers.schema_log import SchemaLog

log = logging.getLogger(__name__)

_COLLECT = 0.001  # seconds: the manifest, and with it the reply, waits for the outputs to be acknowledged


class Built:
    """A member's parts, and what starts and ends them."""

    def __init__(self, config: StageProcessConfig, name: str, model: StatefulModel, schemas: SchemaLog) -> None:
        """`name`: of this process among the shard's members. Call in a running loop."""
        spec, pipeline = config.spec, config.pipeline
        self._config = config
        self._name = name
        self._model = model
        self._schemas = schemas
        self._loop = asyncio.get_running_loop()
        self._shard, self._index = member_of(spec, config.replica)
        self._pipeline = pipeline.spec.name
        self._place = (spec.name, self._shard)
        self._kind = "keyed" if spec.state == "keyed" else "shared"
        predecessors = tuple(pipeline.graph.predecessors[spec.name])
        self.topic = topics.stage_input(self._pipeline, spec.name) if predecessors else topics.ingress(self._pipeline)
        self.period = config.plan_period or period_of(config.policy or each.policy for each in pipeline.spec.stages)
        self.failed: asyncio.Future[None] = self._loop.create_future()  # raises what the process must end for
        self.metrics = StageMetrics(self._pipeline, spec.name, config.replica, queue_limit=spec.queue)
        self.metrics.label = name.rpartition("@")[0].removeprefix(f"{self._pipeline}.")
        self._figures = self.metrics.state = StateFigures()
        self._figures.version = self._version_n
        self.metrics.marks = marks_histogram()
        self._clock = Clock()
        self._limits = merge(pipeline.spec.limits)
        self._planner: Planner | None = None
        self._planning: asyncio.Task[None] | None = None
        self._writer: VersionWriter | None = None
        joins = pipeline.graph.is_join(spec.name)
        signature = stage_signature(spec, [model])  # type: ignore[list-item] # it asks for the model's own signature alone
        self._decoder = Decoder(self._limits, schemas.book)
        self._intake = Intake(
            predecessors=predecessors,
            decoder=self._decoder,
            signature=None if joins else signature,
            slo=pipeline.spec.slo,
            metrics=self.metrics,
        )
        places = pipeline.spec.places
        self.member = ShardMember(
            self._place, places, crashed=self.crashed, reign=self._reign, ended=self._reign_ended, changed=self._changed
        )
        self.input = ShardInput(
            self._intake,
            Memory(self.topic, config.settings.confluent(), self._intake),
            self.metrics,
            feed=self.member.feed,
            crashed=self.crashed,
        )
        self._output = Output(
            config.settings.confluent(),
            self._loop,
            on_stored=self._stored,
            on_lost=self._lost,
            collect=_COLLECT,
            max_bytes=self._limits.max_letter_bytes + 2 * topics.HEADERS_BYTES,
        )
        work = StatefulWork(
            spec.name,
            [],
            UserFunctions(spec, pipeline.graph.successors[spec.name]),
            joins=joins,
            model_name=spec.model or "",
            version=str(spec.version or getattr(model, "version", "") or ""),
            signature=signature if joins else None,
            limits=self._limits,
        )
        self._means = Means(
            clock=self._clock,
            intake=self._intake,
            emission=Emission(self._pipeline, spec.name, self._limits, self._clock),
            metrics=self.metrics,
            tally=Tally(self.metrics),
            output=self._output,
            work=work,
            models=Thread(self._loop, self.crashed),
            copies=Thread(self._loop, self.crashed),
            reload_schemas=schemas.relearn,
            crashed=self.crashed,
            may_emit=lambda: self.member.roles.may_emit(),  # noqa: PLW0108 - roles come when the logs are read
        )
        self._logs = Logs(places)
        self._places = places
        self._copies = Copies(
            self._place,
            self._logs,
            reader=self._standby,
            machine=self.machine,
            covers=self.input.durable,
            keyed=self._kind == "keyed",
        )

    # In order --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read the logs."""
        config, post = self._config, self._loop.call_soon_threadsafe
        self._appender = Appender(config.settings, self._pipeline, self._place, post, self.crashed)
        self._reader = LogReader(
            config.settings,
            self._pipeline,
            self._places,
            self.member,
            post,
            with_control=True,
            decoder=ReplicationDecoder(self._schemas.book),
            relearn=self._schemas.relearn,
        )
        roles = Roles(
            self._place,
            self._name,
            self._index,
            Lease(self._config.spec.lease),
            self._logs,
            self.member,
            appender=self._appender,
            read_to_end=self._reader.read_to_end,
            crashed=self.crashed,
        )
        self.member.join(roles, self._copies, self.input)
        standing = Standing(Role.BACKUP.value)
        self._beats = Beats(config.settings, self._pipeline, self._place, self._name, standing, roles, post)

    def _changed(self) -> None:
        """Tell the others, and the metrics, how this member stands."""
        roles, primary = self.member.roles, self.member.primary
        version = self._copies.applied if primary is None else Version(primary.core.epoch, primary.core.reign.state_n)
        standing = Standing(roles.role.value, max(roles.member.epoch, roles.epoch), version)
        self._beats.standing = standing
        self._figures.role, self._figures.epoch = standing.role, standing.epoch
        self._figures.durable = self._logs.newest_durable(self._place).n

    def _version_n(self) -> int:
        """The version that this member's state is at; asked when somebody reads the metrics."""
        primary = self.member.primary
        return self._copies.applied.n if primary is None else primary.core.reign.state_n

    async def prepare(self) -> None:
        """Read what is durable: where the input begins, and the state for a backup."""
        await self._copies.begin(self._logs.newest_durable(self._place))

    def _standby(self, applied: Callable[[Applied], object]) -> StandbyReader:
        post = self._loop.call_soon_threadsafe
        return StandbyReader(self._config.settings, self._pipeline, self._place, post, applied, self.crashed)

    def begin(self) -> None:
        """Take part: everything that a promotion needs is there."""
        self.member.roles.begin()

    @property
    def settled(self) -> bool:
        """Whether everything that was taken is durable; a backup has taken nothing."""
        primary = self.member.primary
        return primary is None or (primary.core.settled and not primary.core.depth and not len(primary.feed))

    def end_reign(self) -> None:
        """Stop what a reign does."""
        if self.member.primary is not None and self._planner is not None:
            self._planner.farewell(self._output)
        self.member.end()

    async def close(self) -> None:
        """End the threads."""
        for close in (self._beats.close, self._copies.close, self._reader.close, self._appender.close):
            await asyncio.to_thread(close)
        await asyncio.to_thread(self._output.flush, 1.0)
        self._output.close()
        for thread in (self._means.models, self._means.copies):
            await asyncio.to_thread(thread.close, 1.0)

    def crashed(self, error: BaseException) -> None:
        """End the process: it cannot go on without losing or repeating something."""
        if not self.failed.done():
            self.failed.set_exception(error)

    def _lost(self, text: str) -> None:
        """A message could not be delivered, and what it stands for must not become durable."""
        self.crashed(SpillwayError(text))

    # A reign ---------------------------------------------------------------------------------------------------

    async def machine(self, state: Any, version: Version, contents: Contents) -> Machine:
        """A machine with the state of a version (None: the first one), made on the model's thread.

        Where the version has batches after its copy (`checkpoint.modes`, logs), they are computed again.
        """
        made: asyncio.Future[Machine] = self._loop.create_future()
        model, place = self._model, f"stage {self._config.spec.name!r}"
        batches: tuple[Batch, ...] = contents.batches[len(contents.batches) - contents.later :]
        settings = self._config.settings.confluent()
        records = await asyncio.to_thread(read_taken, settings, self.topic, batches) if batches else {}
        n = version.n - contents.later

        def make() -> Machine:
            began = time.monotonic()
            machine = Machine(place, model, state, n)
            if batches:
                count = replay(machine, self._means.work, self._intake, batches, records)
                log.info("%s: computed %d requests again in %.3f s", self._name, count, time.monotonic() - began)
            return machine

        def hand_over(machine: Machine) -> None:
            if not made.done():  # whoever waited may have been overtaken
                made.set_result(machine)

        self._means.models.submit(make, hand_over)
        return await made

    def _reign(self, epoch: int, version: Version, contents: Contents, machine: Machine) -> Primary:
        """Put the driver of a reign together, and have it remember and take what was read."""
        config, spec = self._config, self._config.spec
        mode = MODES[spec.replication]
        reign: Reign[Any] = Reign(self._place, epoch, version, mode, spec.checkpoint_every)
        where = (config.pipeline, spec, self._shard)
        core = build_stateful_core(
            *where, config.policy, reign=reign, logs=self._logs, period=self.period, window=TAIL_RECORDS // 2
        )
        capture = Capture(pages=_pages(contents) if self._kind == "keyed" else None)
        named, present = self._copies.named, self._copies.present

        def make_writer(completed: Callable[[Manifest], object]) -> StateWriter:
            return (TransactingWriter if mode.transacts else StateWriter)(
                config.settings,
                self._pipeline,
                self._place,
                epoch,
                self._loop.call_soon_threadsafe,
                completed,
                self.crashed,
                retention=self.member.retention,
                present=present,
                base=(version, named),
            )

        writer = VersionWriter(
            make_writer,
            claimant=self._name,
            history=lambda: self._logs.log(self._place).history,
            completed=lambda version: primary.completed(version),  # noqa: PLW0108 - it is made below
            figures=self._figures,
            logs=mode.logs,
            release=lambda copy: self._means.copies.submit(copy.release, _nothing),
            crashed=self.crashed,
        )
        primary = Primary(core, machine, capture, writer, self._means)
        positions = {}
        known = {place.partition: place for place in contents.inputs}
        for partition in self.input.partitions:
            place = self.input.place(partition, known)
            spans = core.assign_place(place)
            positions[partition] = place.position
            for delivery in self.input.remembered(partition, place.position, spans):
                core.remember(delivery)
        self.metrics.depth = lambda: core.depth
        self.metrics.received = lambda: core.stats.received
        self.metrics.duplicates = lambda: core.stats.duplicates
        primary.resend(contents.outputs)
        primary.feed.add(self.input.since(positions))
        self._plan(core, primary)
        return primary

    # What the policies tell one another ------------------------------------------------------------------------

    def hear(self, words: Sequence[Word]) -> None:
        """Take what other stages say."""
        if self._planner is not None:
            self._planner.hear(words)

    def _plan(self, core: StatefulCore, primary: Primary) -> None:
        """Speak for the shard while this member is its primary. Its replica number, to others, is the shard's."""
        view = build_view(self._config.pipeline, self._config.spec, self._shard, self.period)
        planner = self._planner = Planner(
            self._config.pipeline.spec,
            view,
            core,
            clock=self._clock,
            decoder=self._decoder,
            metrics=self.metrics,
            reload_schemas=self._schemas.relearn,
        )
        self._means.tally.observes(planner.observed)
        if self._planning is not None:
            self._planning.cancel()
        self._planning = self._loop.create_task(planner.run(self._output, primary.tick))
        self._planning.add_done_callback(self._planning_ended)

    def _planning_ended(self, planning: asyncio.Task[None]) -> None:
        if not planning.cancelled() and (error := planning.exception()) is not None:
            self.crashed(error)

    def _reign_ended(self) -> None:
        """Say nothing more for the shard."""
        self._planner = None
        if self._planning is not None:
            self._planning.cancel()
            self._planning = None

    def _stored(self, tokens: Sequence[Any]) -> None:
        sent = []
        for token in tokens:
            if isinstance(token, Planner):
                token.stored()
            else:
                sent.append(token)
        if sent:
            self.member.stored(sent)


def put_together(config: StageProcessConfig, name: str, model: StatefulModel, schemas: SchemaLog) -> Built:
    """Build what a member is made of. Raises BrokerError where there is no cluster."""
    return Built(config, name, model, schemas)


def _nothing(_result: object) -> None:
    """A released copy has nothing to say."""


def _pages(contents: Contents) -> Pages:
    return Pages(CHUNK_BYTES, count=len(contents.pages) or 1)
