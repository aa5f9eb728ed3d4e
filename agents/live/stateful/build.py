"""Putting a member's process together from its pipeline's spec."""

from __future__ import annotations

import asyncio
import gc
import logging
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from spillway.agents.core.crash_suspects import Suspects
from spillway.agents.live.clock import Clock, since_boot
from spillway.agents.live.groups import member_of
from spillway.agents.live.output import Output
from spillway.agents.live.spans import KafkaSpans
from spillway.agents.live.stage.batch_work import UserFunctions
from spillway.agents.live.stage.build import build_guard, build_view, known_of, period_for, stage_signature
from spillway.agents.live.stage.crash_watch import folder_of
from spillway.agents.live.stage.startup import transacted
from spillway.agents.live.stateful.build_reign import Reigns
from spillway.agents.live.stateful.context import MemberContext
from spillway.agents.live.stateful.control import control_of
from spillway.agents.live.stateful.copies import Copies
from spillway.agents.live.stateful.replaying import WarmUp
from spillway.agents.live.stateful.threads import Thread
from spillway.agents.live.stateful.transactions import take_over
from spillway.agents.live.stateful.work import StatefulWork
from spillway.agents.live.states.beats import Beats, Standing
from spillway.agents.live.states.standby import StandbyReader
from spillway.agents.metrics import LOOK_SECONDS, StageMetrics, StateMetrics, marks_histogram
from spillway.agents.models.execution import Runner
from spillway.agents.run.appends import LogAppender
from spillway.agents.run.emission import Emission
from spillway.agents.run.inputs import OF_STATES, Inputs
from spillway.agents.run.intake import Intake
from spillway.agents.run.log_reader import CONTROL, LogReader
from spillway.agents.run.memory import Memory, Rereading
from spillway.agents.run.planner import Planner, without_words
from spillway.agents.run.shard_input import ShardInput
from spillway.agents.run.shard_member import ShardMember
from spillway.agents.run.shard_roles import RoleDriver
from spillway.agents.run.tally import Tally
from spillway.checkpoint.claims import Claims
from spillway.checkpoint.leases import Lease
from spillway.checkpoint.logs import Logs
from spillway.checkpoint.promotion import Member, Role
from spillway.checkpoint.roles import Roles
from spillway.lineage.errors import SpillwayError
from spillway.lineage.keys import partition_for
from spillway.lineage.marks import Version
from spillway.lineage.values.codec import Decoder
from spillway.lineage.values.replication import ReplicationDecoder
from spillway.producers.kafka.log import ALONE, KafkaLog
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.agents.core.joins import Fetch
    from spillway.agents.core.request import Loss
    from spillway.agents.live.stage.config import StageProcessConfig
    from spillway.agents.live.states.standby import Applied
    from spillway.agents.models.stateful import Machine, StatefulModel
    from spillway.agents.run.emission import Carried
    from spillway.agents.run.primary import Primary
    from spillway.lineage.ports import Record
    from spillway.lineage.replication import Contents
    from spillway.producers.schema_log import SchemaLog

log = logging.getLogger(__name__)


# A shard's part in the exchange of states: its primary speaks for it, as a replica does for itself.
#
# To the other stages the shard's number is the replica's: whoever is primary, it is the same one that speaks.


class Speaker:
    """Speaks while there is a reign. All methods are the loop's."""

    def __init__(self, config: StageProcessConfig, decoder: Decoder, means: MemberContext) -> None:
        self._config = config
        self._decoder = decoder
        self._means = means
        self._planner: Planner | None = None
        self._speaking: asyncio.Task[None] | None = None

    def begin(self, primary: Primary) -> None:
        self.end()
        means = self._means
        planner = self._planner = Planner(
            self._config.pipeline.spec,
            build_view(self._config, self._config.spec),
            primary.core,
            clock=means.clock,
            decoder=self._decoder,
            metrics=means.metrics,
            reload_schemas=means.reload_schemas,
        )
        means.tally.observes(planner.observed)
        loop = asyncio.get_running_loop()
        planner.follow(means.kafka.through(loop.call_soon_threadsafe))
        self._speaking = loop.create_task(planner.run(means.output, primary.tick))
        self._speaking.add_done_callback(self._ended)

    def end(self, *, farewell: bool = False) -> None:
        """Say nothing more; with a farewell, that the shard's speaker stops for good."""
        if self._planner is not None:
            self._planner.deafen()
            if farewell:
                self._planner.farewell(self._means.output)
        self._planner = None
        if self._speaking is not None:
            self._speaking.cancel()
            self._speaking = None

    def _ended(self, speaking: asyncio.Task[None]) -> None:
        if not speaking.cancelled() and (error := speaking.exception()) is not None:
            self._means.crashed(error)


def _placed(model: Any, partitions: int, query: Any, partition: int) -> bool:
    """Whether a query is on the partition of its state's key; True where its model cannot tell, as it will say why."""
    try:
        return partition_for(model.key(query).encode(), partitions) == partition
    except BaseException:  # noqa: BLE001 - user code
        return True


_COLLECT = 0.001  # seconds: the manifest, and with it the reply, waits for the outputs to be acknowledged

# Seconds from the end of a reign to a collection of garbage, by when its threads and messages have ended. What it held,
# up to some 100 MB, is full of cycles, and a stage collects so rarely that those of several reigns would add up.
_GARBAGE_SECONDS = 1.0


class Built:
    """A member's parts, and what starts and ends them."""

    def __init__(
        self,
        config: StageProcessConfig,
        name: str,
        runner: Runner,
        model: StatefulModel,
        schemas: SchemaLog,
        kafka: KafkaLog,
    ) -> None:
        """`name`: of this process among the shard's members; `runner`: of the model. Call in a running loop."""
        spec, pipeline = config.spec, config.pipeline
        self._config = config
        self._name = name
        self._schemas = schemas
        self._loop = asyncio.get_running_loop()
        self._shard, self._index = member_of(spec, config.replica)
        self._pipeline = pipeline.spec.name
        self._place = (spec.name, self._shard)
        root = not pipeline.graph.predecessors[spec.name]
        self.topic = topics.ingress(self._pipeline) if root else topics.stage_input(self._pipeline, spec.name)
        self.failed: asyncio.Future[None] = self._loop.create_future()  # raises what the process must end for
        self.metrics = StageMetrics(self._pipeline, spec.name, config.replica, queue_limit=spec.queue)
        self.metrics.label = name.rpartition("@")[0].removeprefix(f"{self._pipeline}.")
        self._figures = self.metrics.state = StateMetrics()
        self._figures.version = lambda: self._version().n
        self.metrics.marks = marks_histogram()
        self._limits = pipeline.spec.limits.merged()
        decoder = Decoder(self._limits, schemas.book)
        self._means = self._with(runner, model, decoder, kafka)
        if spec.publish:
            self._means.work.placed = partial(_placed, model, pipeline.spec.partitions)
        self._control, self._open = control_of(config, kafka), ExitStack()
        if self._control is not None:
            self._means.work.control = self._control.now
        of_shard = replace(config, replica=self._shard, plan_period=period_for(config))
        self.speaker = Speaker(of_shard, decoder, self._means)
        self._logs = Logs(pipeline.spec.places)
        parts = len(pipeline.graph.predecessors[spec.name]) or 1
        self._rehearsal = WarmUp(f"stage {spec.name!r}, rehearsed", model, self._means, parts=parts)
        self._reigns = Reigns(of_shard, name, self._place, model, self._logs, self._means)
        self.member = ShardMember(
            self._place,
            pipeline.spec.places,
            crashed=self.crashed,
            reign=self._reign,
            ended=self._ended,
            changed=self._changed,
        )
        self.input = ShardInput(
            self._means.intake,
            Memory(self.topic, KafkaSpans(config.settings.confluent()), self._means.intake),
            self.metrics,
            Inputs(self.topic, OF_STATES, self.metrics.stopped, markers=transacted(config)),
            feed=self._feed,
            crashed=self.crashed,
            joins=pipeline.graph.is_join(spec.name),
        )
        self._means.rereading.begin(self._fetched, self.crashed)
        self._copies = Copies(
            self._place,
            self._logs,
            reader=self._standby,
            read_to_ends=lambda then: self._reader.read_to_ends(then),  # noqa: PLW0108 - it begins in `start`
            machine=partial(self._reigns.machine, self.topic),
            covers=self.input.durable,
            changed=self._changed,
            keyed=spec.required_state.kind == "keyed",
        )

    def _with(self, runner: Runner, model: StatefulModel, decoder: Decoder, kafka: KafkaLog) -> MemberContext:
        config, spec, graph, clock = self._config, self._config.spec, self._config.pipeline.graph, Clock()
        joins = graph.is_join(spec.name)
        known = known_of(model)
        signature = stage_signature(spec, known)
        intake = Intake(
            predecessors=tuple(graph.predecessors[spec.name]),
            decoder=decoder,
            signature=None if joins else signature,
            slo=config.pipeline.spec.slo,
            metrics=self.metrics,
            places=config.pipeline.spec.places,
            truths=spec.required_state.replication == "nspb"
            and not (graph.predecessors[spec.name] or graph.successors[spec.name]),
        )
        return MemberContext(
            clock=clock,
            intake=intake,
            emission=Emission(self._pipeline, spec.name, self._limits, clock),
            metrics=self.metrics,
            tally=Tally(self.metrics),
            output=Output(
                config.settings.confluent(),
                self._loop,
                on_stored=self._stored,
                on_lost=lambda text: self.crashed(SpillwayError(text)),  # what it stands for must not become durable
                collect=_COLLECT,
                max_bytes=self._limits.max_letter_bytes + 2 * topics.HEADERS_BYTES,
            ),
            work=StatefulWork(
                spec,
                [],
                UserFunctions(spec, graph.successors[spec.name], partial(graph.expected, spec.name)),
                joins=joins,
                version=known.version,
                signature=signature if joins else None,
                limits=self._limits,
                guard=build_guard(spec, folder_of(config.run_dir, self._pipeline, spec.name)),
            ),
            models=Thread(runner, self._loop, self.crashed),
            copies=Thread(Runner("copies"), self._loop, self.crashed),
            reload_schemas=self._schemas.relearn,
            kafka=kafka,
            crashed=self.crashed,
            may_emit=lambda: self.member.turns.may_emit(),  # noqa: PLW0108 - roles come when the logs are read
            reads_on=lambda: not self.input.waits,
            excuse=lambda held: self.input.excuse(held),  # noqa: PLW0108 - the input is made with this
            rereading=Rereading(self.topic, KafkaSpans(config.settings.confluent()), intake),
            suspects=Suspects(),
            begin_anew=lambda why: self.member.turns.want(why),  # noqa: PLW0108 - as before
        )

    # In order --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        config, post = self._config, self._loop.call_soon_threadsafe
        if self._control is not None:
            self._open.enter_context(self._control.log)
        self._appender = LogAppender(self._means.output, self._pipeline, self._place)
        self._versions = KafkaLog(config.settings, ALONE)  # which rest: they are read at once when they are looked at
        self._reader = LogReader(
            self._versions.through(post),
            self._pipeline,
            self._config.pipeline.spec.places,
            self.member,
            with_control=True,
            soon=(),
            decoder=ReplicationDecoder(self._schemas.book),
            relearn=self._schemas.relearn,
            now=since_boot,
        )
        self._reader.tick_on(self._loop)
        transacts = config.spec.required_state.replication == "kafka-eos"
        turns = RoleDriver(
            Roles(
                Member(self._place, self._name, Claims(), self._logs),
                self._index,
                Lease(self._config.spec.required_state.lease),
                prepares=transacts,
            ),
            self.member,
            clock=self._means.clock,
            appender=self._appender,
            read_to_end=self._reader.read_to_end,
            active=self._follow,
            crashed=self.crashed,
            before_fence=self._take_over if transacts else None,
        )
        self.member.join(turns, self._copies, self.input)
        standing = Standing(Role.BACKUP.value)
        where = (config.settings, self._pipeline, self._place, self._name)
        self._beats = Beats(*where, standing, turns, post, stirred=self._reader.look)
        self._tell()
        self._means.work.guard.look({})
        self._means.work.guard.watch(self._loop, self.crashed)

    def _follow(self, active: bool) -> None:  # noqa: FBT001 - a callback's one word
        """Have the logs followed that a reign rests on, from when the shard is claimed to when the reign has ended."""
        pipeline = self._config.pipeline
        before = pipeline.graph.rests_on(self._place[0])
        soon = [place for place in pipeline.spec.places if place == self._place or place[0] in before]
        self._reader.follow((CONTROL, *soon) if active else ())

    def _tell(self) -> None:
        """Tell who watches what cannot be seen from outside: what is waited for, and how far large states have come."""
        waiting = self._logs.waiting(self._place) > 0  # complete, and not durable: that is up to other stages
        excused = waiting or self._means.work.guard.busy  # a batch has a time-out of its own
        self.metrics.waits.say(frozenset(self.input.partitions) if excused else frozenset())
        self._figures.moved = self._copies.read_bytes + self._figures.sent()
        self._telling = self._loop.call_later(LOOK_SECONDS, self._tell)

    def _take_over(self, epoch: int, then: Callable[[], None]) -> None:
        if not epoch:
            then()
            return
        topic = topics.state(self._pipeline, self._place[0])

        async def run() -> None:
            try:
                await asyncio.to_thread(take_over, self._config.settings, topic, self._shard, epoch)
                then()
            except Exception as error:  # noqa: BLE001 - else nobody would hear why the claim goes no further
                self.crashed(error)

        self._taking_over = self._loop.create_task(run())

    def _feed(self, records: list[Record]) -> None:
        if self.member.roles.role is Role.PRIMARY:
            self._rehearsal.skip()
        else:
            self._rehearsal.look(records)
        self.member.feed(records)

    def _fetched(self, fetch: Fetch, payload: Carried, loss: Loss | None) -> None:
        if self.member.primary is not None:
            self.member.primary.fetched(fetch, payload, loss)

    def _changed(self) -> None:
        roles = self.member.roles
        standing = Standing(roles.role.value, max(roles.member.epoch, roles.epoch), self._version())
        self._beats.standing = standing
        self._figures.role, self._figures.epoch = standing.role, standing.epoch
        self._figures.durable = self._logs.newest_durable(self._place).n

    def _version(self) -> Version:
        primary = self.member.primary
        return self._copies.applied if primary is None else Version(primary.core.epoch, primary.core.reign.state_n)

    async def prepare(self) -> None:
        """Read what is durable: where the input begins, and the state for a backup; find where outputs go."""
        onward = topics.onward(self._pipeline, self._config.pipeline.graph.successors[self._config.stage])
        if self._config.spec.publish:
            onward = (*onward, topics.table(self._pipeline, self._config.stage))
        await self._means.output.know((*onward, *self._appender.topics))
        if self._control is not None:
            await asyncio.to_thread(self._control.read)
        await self._copies.begin(self._logs.newest_durable(self._place))
        if self._copies.entries:
            await self._reigns.refuse_unfit(self._copies.entries)

    def _standby(self, applied: Callable[[Applied], object], missing: Callable[[Version], object]) -> StandbyReader:
        where = (self._means.kafka.through, self._pipeline, self._place)
        return StandbyReader(*where, self._loop.call_soon_threadsafe, applied, self.crashed, on_missing=missing)

    @property
    def settled(self) -> bool:
        primary = self.member.primary
        return primary is None or (primary.core.settled and not primary.core.depth and not len(primary.feed))

    def end_reign(self) -> None:
        self.speaker.end(farewell=True)
        if self.member.primary is not None:
            self.member.turns.silence()  # nothing is sent any more, so nobody asks for it
        self.member.end()

    async def close(self) -> None:
        self._telling.cancel()
        await self._means.rereading.stop(1.0)
        self._reader.close()
        followed = (self._copies.close, self._versions.shut, self._open.close)
        for close in (self._beats.close, *followed):
            await asyncio.to_thread(close)
        await self._means.output.close()
        for thread in (self._means.models, self._means.copies):
            await asyncio.to_thread(thread.close, 1.0)
        self._means.work.guard.close()

    def crashed(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    # A reign ---------------------------------------------------------------------------------------------------

    def _reign(self, epoch: int, base: Version, contents: Contents, machine: Machine) -> Primary:
        primary = self._reigns.begin(
            *(epoch, base, contents, machine),
            shard_input=self.input,
            copies=self._copies,
            retention=self.member.retention,
        )
        self.speaker.begin(primary)
        return primary

    def _ended(self) -> None:
        self.speaker.end()
        self._loop.call_later(_GARBAGE_SECONDS, gc.collect)

    def _stored(self, tokens: Sequence[Any]) -> None:
        without_words(LogAppender.stored(tokens), self.member.stored)
