"""A member of a shard as a process: the member that ships, over a run's logs, its heartbeats and its chunks.

What is of the run alone: how long computing and copying take and where a process may die in them
(`spillway.agents.proof.shards.member.work`), and what lies in the logs of versions and chunks.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.core.batching import Batcher
from spillway.agents.core.crash_suspects import Suspects
from spillway.agents.core.policies import POLICIES, make
from spillway.agents.core.policies.adaptive import HIGH
from spillway.agents.core.policies.pard import Pard
from spillway.agents.core.policies.selection import select
from spillway.agents.core.policy import StageView
from spillway.agents.memory.groups import Group
from spillway.agents.memory.ports import MemoryClock, MemorySpans
from spillway.agents.metrics import StageMetrics
from spillway.agents.proof.shards.member.copies import RunStates
from spillway.agents.proof.shards.member.host import Host, Reigning, Standby
from spillway.agents.proof.shards.member.work import RunCapture, RunCopies, RunJobs, RunMachine, RunTally, RunWork
from spillway.agents.proof.shards.member.writer import RunWriter
from spillway.agents.proof.shards.ports import RunEmission, RunInput, RunInputs, RunIntake, RunOutput
from spillway.agents.proof.shards.world.logs import RunLog, reading
from spillway.agents.proof.shards.world.records import CONTROL, PIPELINE, Logged, beats_of, keyed, versions_of
from spillway.agents.proof.shards.world.world import Loaded, Made
from spillway.agents.run.log_reader import CONTROL as CONTROL_LOG
from spillway.agents.run.log_reader import LogReader
from spillway.agents.run.memory import Memory, Rereading
from spillway.agents.run.shard_context import ShardContext
from spillway.agents.run.shard_member import ShardMember
from spillway.agents.run.shard_roles import RoleDriver
from spillway.checkpoint import claims as claim_log
from spillway.checkpoint.claims import Claims
from spillway.checkpoint.promotion import Role
from spillway.checkpoint.roles import Roles
from spillway.lineage.marks import INITIAL, Mark, Version
from spillway.lineage.replication import Base, Beat, Claim, Contents, Fence, Report, Yield

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable
    from typing import ClassVar

    from spillway.agents.memory.broker import Place
    from spillway.agents.proof.shards.world.world import StateWorld
    from spillway.agents.run.primary import Primary
    from spillway.lineage.replication import Batch as Recorded

_PERIOD: Final = 1.0  # seconds between two ticks


class HighBudgetFirst(Pard):
    """What came last first: the order that differs most from that of the log."""

    __slots__ = ()
    order: ClassVar[str] = HIGH


_POLICIES: Final = POLICIES | {"hbf": HighBudgetFirst}


class RunAppender:
    """Appends to the control log and to the version log of a member's shard."""

    def __init__(self, process: MemberProcess) -> None:
        self._process, self._world = process, process.world

    def append(self, record: Claim | Yield | Fence | Base) -> None:
        process, counts = self._process, self._world.result.counts
        if isinstance(record, Yield):
            counts["yields"] += 1
            process.wire.send(CONTROL, keyed(claim_log.key(record), record))
            return
        if isinstance(record, Claim):
            if process.stood_down == self._world.now:
                counts["goes back itself"] += 1
            kind, sent = "claim", (CONTROL, keyed(claim_log.key(record), record))
        else:
            kind = "fence" if isinstance(record, Fence) else "base"
            key = self._world.scenario.guards.version_key(record)
            sent = versions_of(process.place), keyed(key, Logged(record))
        process.point(f"{kind}.before")
        counts[kind] += 1
        process.wire.send(*sent, lambda: process.point(f"{kind}.after"))


class _Counts(ShardMember):
    """Counts what becomes of reigns. What a guard has in a member's place stands behind it."""

    process: MemberProcess

    def load(self, epoch: int, version: Version) -> None:
        self.process.role = "primary"
        super().load(epoch, version)

    def stand_down(self) -> None:
        process = self.process
        process.role = "backup"
        if self.primary is not None:
            process.stood_down = process.world.now
            process.world.result.counts["stood down"] += 1
        super().stand_down()

    def emit_again(self) -> None:
        self.process.world.result.counts["lease regained"] += 1
        super().emit_again()


class RunRoles(RoleDriver):
    """Counts the reigns that are given up."""

    counts: Counter[str]

    def give_up(self, why: str) -> None:
        self.counts["contaminated"] += 1
        super().give_up(why)


class MemberProcess(Host):
    """One incarnation of one member."""

    def __init__(self, world: StateWorld, place: Place, replica: int) -> None:
        super().__init__(world, place[0], replica)
        self.place = place
        self.role = "backup"
        self.name = f"{place[0]}.{place[1]}.{replica}@{self.incarnation}"
        self.logs = world.scenario.guards.member_logs(world.places_for(place))
        self.standby = Standby()
        self.reigning = None
        self.stood_down: float | None = None  # when it was last a primary and stood down
        self._period = max(_PERIOD, world.scenario.commit_every)
        self._sequence = 0
        self._beats_at = world.broker.end(beats_of(place))
        self._began = False
        self.run(self._serve())

    async def _serve(self) -> None:
        world, place, guards = self.world, self.place, self.world.scenario.guards
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        places = world.places_for(place)
        topic = world.topic(place[0])
        member: type[_Counts] = type("RunMember", (_Counts, guards.shard_member), {})
        self.member = made = member(
            place, places, crashed=self.crashed, reign=self._reign, ended=self._ended_reign, changed=bool
        )
        made.process = self
        self._given = self._made(topic)
        self.input = guards.shard_input(
            self._given.intake,
            Memory(topic, MemorySpans(world, self), self._given.intake),
            self._given.metrics,
            RunInputs(self, topic),
            feed=self.member.feed,
            crashed=self.crashed,
            tail=partial(guards.tail, strip=_whole, most_records=world.scenario.tail_records),
        )
        self.states = RunStates(self)
        self._log = RunLog(world, self)
        self._reader = LogReader(
            *(self._log, PIPELINE, places, self.member), with_control=True, soon=(), **reading(world)
        )
        self.turns = RunRoles(
            Roles(guards.member(place, self.name, Claims(), self.logs), self.replica, world.scenario.lease),
            self.member,
            clock=MemoryClock(self),
            appender=RunAppender(self),
            read_to_end=self._reader.read_to_end,
            active=self._follow,
            crashed=self._ends,
        )
        self.turns.counts = world.result.counts
        self.member.join(self.turns, self.states, self.input)
        self._reader.tick_on(asyncio.get_running_loop())
        world.subscribe(self, CONTROL, self._reader.look)
        world.subscribe(self, beats_of(place), self._hear)
        self.after(world.random.random() * world.scenario.lease.beat, self._beat)
        await self.member.read()
        await self.states.begin()
        partitions = range(place[1], world.scenario.partitions, world.scenario.shards_of(place[0]))
        self._source = RunInput(self, Group(world, self.name, topic, partitions), self.input, replays=True)
        self.input.inputs.bounds = self._source.bounds
        self._source.start()
        await self.input.started()
        self.turns.begin()
        self._began = True
        self.after(self._period, self._tick)
        await self._failed

    def _made(self, topic: str) -> ShardContext:
        world, stage, random = self.world, self.stage, self.world.random
        metrics = StageMetrics("p", stage, self.replica)
        intake: Any = RunIntake(stage, world.scenario.poison)
        self._tally = RunTally(metrics)
        self._models = RunJobs(self, lambda: world.duration(world.scenario.batch) * random.uniform(0.1, 2.0))
        self._copies = RunCopies(self, lambda: random.uniform(0.0005, 0.015))
        return ShardContext(
            clock=MemoryClock(self),
            intake=intake,
            emission=RunEmission(stage, self._speaks),  # type: ignore[arg-type]
            metrics=metrics,
            tally=self._tally,
            output=RunOutput(self, self.member.stored),
            work=RunWork(self),
            models=self._models,
            copies=self._copies,
            reload_schemas=bool,
            crashed=self.crashed,
            may_emit=lambda: self.turns.may_emit(),  # noqa: PLW0108 - roles come when the logs are read
            reads_on=lambda: not self.input.waits,
            excuse=lambda held: self.input.excuse(held),  # noqa: PLW0108 - the input is made with this
            rereading=Rereading(topic, MemorySpans(world, self), intake),
            suspects=Suspects(),
            begin_anew=lambda why: self.turns.want(why),  # noqa: PLW0108 - as before
        )

    def _speaks(self) -> tuple[int, int]:
        """Return for which shard and in which epoch messages are made now."""
        assert self.reigning is not None  # nobody else sends
        return self.place[1], self.reigning.epoch

    def _follow(self, active: bool) -> None:  # noqa: FBT001 - a callback's one word
        """Follow the logs that a reign rests on record by record, from a claim to the reign's end."""
        self._reader.follow((CONTROL_LOG, *self.world.places_for(self.place)) if active else ())

    def position(self, partition: int) -> int:
        """Return what the newest durable version that it knows covers of a partition."""
        return self.input.position(partition) if self._began else 0

    async def read_to_end(self) -> None:
        read = asyncio.Event()
        self._reader.read_to_end(self.place, read.set)
        await read.wait()

    # A reign ---------------------------------------------------------------------------------------------------

    def _reign(self, epoch: int, base: Version, contents: Contents, machine: RunMachine) -> Primary:
        world, scenario = self.world, self.world.scenario
        guards, counts = scenario.guards, world.result.counts
        policy = make(
            select(scenario.policy, _POLICIES), StageView(stage=self.stage, replica=self.replica, instances=1)
        )
        reign = guards.reign(self.place, epoch, base, scenario.mode, scenario.every)
        core = guards.stateful(
            *(world.graph, self.stage, Batcher(policy, scenario.batch, 0.0, 1, world.duration)),
            reign=reign,
            logs=self.logs,
            rule=scenario.topology.rules.get(self.stage),
            queue_limit=scenario.queue_limit,
        )
        capture = RunCapture()
        reigning = self.reigning = Reigning(core, base, machine, capture)
        reign.record = partial(self._recorded, reigning, reign.record)  # type: ignore[method-assign]
        self._tally.made = None

        def completed(version: Version) -> None:
            primary.completed(version)

        writer = RunWriter(self, epoch, base, completed)
        primary = guards.primary(core, machine, capture, writer, self._given, self.input.at)  # type: ignore[arg-type]
        world.result.loaded.append(Loaded(self.place, base, machine.state.now.digest, self.name))
        counts["reigns"] += 1
        counts["sent again"] += len(contents.outputs)
        primary.resend(contents.outputs)
        primary.feed.add(self.input.begin(core, contents.inputs))
        return primary

    def _ended_reign(self) -> None:
        self.reigning = None

    def _recorded(self, reigning: Reigning, record: Callable[..., None], batch: Recorded, *rest: object) -> None:
        mark = Mark(*self.place, reigning.core.reign.next)
        self.world.result.batches[mark] = batch
        made, self._tally.made = self._tally.made, None
        digest = reigning.machine.state.now.digest
        self.world.made(mark, made or Made(digest, digest, 0))  # drops alone change nothing
        record(batch, *rest)

    # How it ends -----------------------------------------------------------------------------------------------

    def _ends(self, _error: BaseException) -> None:
        if self.alive:
            self.kill()
            self.world.ended(self)

    # What others say -------------------------------------------------------------------------------------------

    def reported(self, names: tuple[str, ...]) -> None:
        if hasattr(self, "turns"):
            self.turns.reported(Report(*self.place, names, 0, "its supervisor saw it end"))

    def _beat(self) -> None:
        self.point("lease")
        self._sequence += 1
        self.turns.sent(self.world.now, self._sequence)
        role = self.turns.core.role.value
        beat = Beat(*self.place, self.name, 0, role, self._sequence, round(self.now * 1e6), INITIAL)
        self.wire.send(beats_of(self.place), keyed(None, beat))
        self.after(self.world.scenario.lease.beat, self._beat)

    def _hear(self) -> None:
        where = beats_of(self.place)
        for record in self.world.broker.read(where, self._beats_at):
            self._beats_at = record.offset + 1
            self.turns.heard(record.body, self.world.now)

    # For the run -----------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self.member.primary is not None:
            self.member.primary.tick(self.now, {})
        self.after(self._period, self._tick)

    @property
    def idle(self) -> bool:
        """Whether everything that was read is recorded, written and durable, and nobody is to take this one's place."""
        if not (self._began and self.wire.is_quiet(beats_of(self.place)) and self._log.read_up):
            return False
        if not self._source.read_up or self._models.busy or self._copies.busy:
            return False
        primary, role = self.member.primary, self.turns.core.role
        if primary is None:
            return role is Role.BACKUP
        core = primary.core
        under_way = core.waiting or core.depth or len(primary.feed) or primary.unsent
        return role is Role.PRIMARY and core.contaminated is None and core.settled and not under_way


def _whole(arrival: Any) -> Any:
    """Keep a record of a run as it is: it is an object, and has no value to be dropped."""
    return arrival
