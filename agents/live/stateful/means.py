"""What a reign is made with: what its member has, whoever reigns, and what comes back of a message that it sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from spillway.agents.models.execution import Instances

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from spillway.agents.core.actions import Emit
    from spillway.agents.core.deaths import Suspects
    from spillway.agents.live.clock import Clock
    from spillway.agents.live.output import Output
    from spillway.agents.live.stateful.work import StatefulWork
    from spillway.agents.metrics import StageMetrics
    from spillway.agents.models.execution import Runner
    from spillway.agents.run.emission import Emission
    from spillway.agents.run.intake import Intake
    from spillway.agents.run.memory import Rereading
    from spillway.agents.run.tally import Tally
    from spillway.checkpoint.capture import Captured
    from spillway.checkpoint.reign import Write
    from spillway.lineage.marks import Version
    from spillway.lineage.replication import Output as Contained
    from spillway.producers.kafka.log import KafkaLog


# Work beside the loop, one job after another on a thread of its own: computing and updating, and copying.
#
# A job says what to run there and what to call on the loop with what came out; a job that raises ends the member.


@dataclass(slots=True)
class Job:
    """Something to run on a thread."""

    run: Callable[[], Any]
    done: Callable[[Any], None]


class Thread:
    """Runs jobs in their order, on a runner's thread."""

    def __init__(
        self, runner: Runner, loop: asyncio.AbstractEventLoop, broken: Callable[[BaseException], None]
    ) -> None:
        """`broken` is called on the loop with what a job raised; no further one is run."""
        self._instances: Instances[Job] = Instances([runner], loop, work=_run, done=_done, broken=broken)

    def submit(self, run: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run `run` after what was submitted before; `done` is called on the loop with what it returned."""
        self._instances.submit(0, Job(run, done))

    def close(self, timeout: float) -> bool:
        """End the thread once it has done what it was given; False if it still runs after `timeout` seconds."""
        return self._instances.close(timeout)


def _run(_instance: int, job: Job) -> Any:
    return job.run()


def _done(job: Job, result: Any) -> None:
    job.done(result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a member has, whoever reigns."""

    clock: Clock
    intake: Intake
    emission: Emission
    metrics: StageMetrics
    tally: Tally
    output: Output
    work: StatefulWork
    models: Thread
    copies: Thread
    reload_schemas: Callable[[], bool]
    kafka: KafkaLog
    crashed: Callable[[BaseException], None]
    may_emit: Callable[[], bool]
    reads_on: Callable[[], bool]  # whether the input is read on; if not, until a version has become durable
    excuse: Callable[[int], None]  # that so much of the input is held for a join's sake
    rereading: Rereading
    suspects: Suspects
    begin_anew: Callable[[str], None]  # a reign, from the newest complete version, as this one's state is no good


class ReignWriter(Protocol):
    """Writes the versions of one epoch, one at a time; it says `completed` for each."""

    def write(self, order: Write[Captured], outputs: tuple[Contained, ...]) -> None:
        """Write a version's chunks."""

    def seal(self, version: Version) -> None:
        """Let its manifest be appended when its chunks are acknowledged."""

    def durable(self, version: Version) -> None:
        """Note the newest durable version of the epoch: what is older may be tombstoned."""

    def close(self) -> None:
        """Write nothing more."""


class Sent(NamedTuple):
    """What comes back when a message of a reign is stored; without an emit it was one of the base's."""

    reign: object  # the driver of the reign that sent it; only told from others
    emit: Emit | None
