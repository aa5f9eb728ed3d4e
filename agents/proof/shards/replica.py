"""What the processes of a stateful pipeline have in common: points at which they may die, and a wire of their own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from spillway.agents.core.actions import Ok
from spillway.agents.core.request import Delivery
from spillway.agents.memory.loop import KilledError
from spillway.agents.memory.wire import Wire
from spillway.agents.proof.shards.world.logs import RunLog, reading
from spillway.agents.proof.shards.world.model import Item, unreadable
from spillway.agents.proof.shards.world.records import PIPELINE, Record
from spillway.agents.proof.shards.world.world import Process
from spillway.lineage.errors import BrokerError, CheckpointError, WireError
from spillway.lineage.message import PREDICTION, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from spillway.agents.core.request import Request
    from spillway.agents.memory.broker import Place
    from spillway.agents.proof.shards.world.world import StateWorld
    from spillway.agents.run.log_reader import LogsFeed
    from spillway.checkpoint.logs import Logs


DEAD_LETTERS = "dead"


@dataclass(slots=True)
class Report:
    """The payload of a delivery to the gate."""

    outcome: Outcome
    key: bytes | None = None
    taken: float = 0.0  # when the gate took it


def delivery_of(partition: int, record: Record) -> Delivery:
    hop = record.hop
    return Delivery(
        record.request_id, partition, record.offset, record.sent, record.deadline,
        hop.stage if hop is not None else "", hop, dict(record.path), record.lost, record.appended, record.body,
    )  # fmt: skip


def report_of(partition: int, record: Record) -> Delivery:
    delivery = delivery_of(partition, record)
    delivery.payload = Report(record.body)
    return delivery


def item_of(request: Request) -> Item:
    parts = sorted(request.parts, key=lambda part: part.predecessor)
    return Item(request.request_id, tuple((part.predecessor, part.payload) for part in parts))


def items_of(stage: str, taken: Iterable[Record], poison: float) -> list[Item]:
    """Return the requests of a batch as the model sees them: those whose records stand together are one."""
    items = []
    for request, records in groupby(taken, key=lambda record: record.request_id):
        heard = [(record.hop.stage if record.hop else "", record) for record in records if not record.lost]
        parts = ((sender, one.body) for sender, one in heard if not unreadable(stage, sender, request, poison))
        items.append(Item(request, tuple(sorted(parts))))
    return items


def result_of(world: StateWorld, stage: str, value: str) -> Ok:
    """Send a value on its way; where the stage chooses, the value decides which."""
    chosen = world.scenario.chosen(stage, value)
    going = world.graph.successors[stage] if chosen is None else chosen
    if not going:
        return Ok({None: Outcome(PREDICTION, outputs={"value": value}, stage=stage)}, chosen)
    return Ok(dict.fromkeys(going, value), chosen)


class Living(Process):
    """A process that dies where it is told to, and not only between two events."""

    def __init__(self, world: StateWorld, stage: str, replica: int) -> None:
        self.role = ""
        skew = world.scenario.skew
        ahead = world.random.uniform(-skew, skew) if skew else 0.0
        super().__init__(world, stage, replica, ahead=ahead)
        self.wire = Wire[Record](world, self)

    @property
    def has(self) -> set[int]:
        """The partitions that its group gives it and that it reads; none where it is in none."""
        return set()

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        super().after(seconds, lambda: self.attempt(what))

    def attempt(self, what: Callable[[], None]) -> None:
        try:
            what()
        except KilledError:
            pass
        except (CheckpointError, WireError) as error:
            self.crashed(error)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in this process, until it dies. An error that no schedule provides for ends the run."""
        self.start(work).add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, CheckpointError | WireError):
            self.crashed(error)
        elif isinstance(error, BrokerError):  # another process has its place
            self.kill()
            self.world.ended(self)
        elif error is not None and not isinstance(error, KilledError):
            self.world.loop.failures.append(error)

    def crashed(self, error: BaseException) -> None:
        """Record an error that no schedule provides for, unless the process has ended already, and end it."""
        if self.alive:
            self.world.result.problems.append(f"{self.stage}.{self.replica}: {error}")
            self.kill()

    def point(self, name: str) -> None:
        """Come to a point by name; the process may not come beyond it."""
        self.world.points(self, name)
        if not self.alive:
            raise KilledError


class Replica(Living):
    """One incarnation of one replica of a stage or of the gate, whose group deals it partitions."""

    def __init__(self, world: StateWorld, stage: str, replica: int) -> None:
        super().__init__(world, stage, replica)
        self.feed: LogsFeed | None = None  # the version logs, where it rests on some
        self._log: RunLog | None = None
        self.run(self._serve())

    async def _serve(self) -> None:
        raise NotImplementedError

    async def read_to_ends(self) -> None:
        """Read the version logs to the ends that they have from now on."""
        if self.feed is not None:
            read = asyncio.Event()
            self.feed.reader.read_to_ends(read.set)
            await read.wait()

    def _follow(self, logs: type[Logs], places: Sequence[Place], changed: Callable[[], object]) -> Logs | None:
        """Read the version logs of some shards from now on; None where there is none."""
        if not places:
            return None
        log, feed = RunLog(self.world, self), self.world.scenario.guards.feed
        self.feed = feed(log, PIPELINE, places, changed, self.crashed, logs=logs, **reading(self.world))
        self._log = log
        self.feed.reader.tick_on(self.world.loop)
        return self.feed.logs

    @property
    def _has_read(self) -> bool:
        """Whether all logs that it follows are read."""
        return self._log is None or self._log.read_up
