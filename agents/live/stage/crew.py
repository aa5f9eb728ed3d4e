"""A stage's workers that are processes: started, given batches and replaced, on the stage's loop.

The pool says which workers there are to be (`spillway.agents.core.pool`), the links speak to them
(`spillway.agents.workers.links`), and the core hears which are ready and which are lost (`StageCore.attach`, `drain`,
`lose`). The inputs of a batch are made, and its results encoded, on the links' thread.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from spillway.agents.core.pool import Pool, Start
from spillway.agents.core.workers import Phase
from spillway.agents.live.clock import Clock
from spillway.agents.live.stage.crash_watch import Run, busy_places
from spillway.agents.run.alarm import Alarm
from spillway.agents.workers.links import LOAD_SECONDS, Links
from spillway.agents.workers.processes import command_of
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.agents.core.actions import Executed, Result
    from spillway.agents.core.crash_suspects import Place
    from spillway.agents.core.request import Request
    from spillway.agents.live.stage.batch_work import Prepared
    from spillway.agents.workers.links import Listener
    from spillway.lineage import ports
    from spillway.topology.spec import StageSpec

log = logging.getLogger(__name__)

_MOST_LOADS: Final = 3  # ends of workers that loaded, before any was ready


class Job(Protocol):
    """What a worker is given: a batch, or an extra of a dispatch."""

    @property
    def requests(self) -> Sequence[Request]:
        """What the job answers for; none of an extra."""
        ...


class Work(Protocol):
    """What is made of jobs and answers, on the links' thread: `BatchWork`, or `CopyWork` for extras."""

    def prepare(self, job: Any) -> Prepared: ...

    def result(self, prepared: Prepared, place: int, answer: Mapping[str, Any], seconds: float) -> Result | None: ...


class Driver(Protocol):
    """What the crew tells of its workers, on the loop."""

    def attach(self, worker: int) -> None: ...

    def drain(self, worker: int) -> bool: ...

    def lose(
        self, worker: int, results: Sequence[Result | None], blamed: list[int], why: str, *, counted: bool
    ) -> None: ...

    def executed(self, job: Any, done: Executed, /) -> None: ...

    def crashed(self, error: BaseException) -> None: ...


class WorkerLinks(Protocol):
    """What a crew asks of the connections to its workers: `Links`, or those of a world in memory.

    They tell their `Listener` what came of it, on a thread of theirs where they have one.
    """

    def spawn(self, worker: int) -> None:
        """Start a worker."""
        ...

    def send(self, worker: int, job: Any, queries: list[dict[str, Any]], *, singly: bool) -> None:
        """Send a batch to a worker; the listener gets `job` back with what came of it."""
        ...

    def bye(self, worker: int) -> None:
        """End a worker that runs nothing; the listener hears nothing more of it."""
        ...

    def call(self, what: Callable[[], None]) -> None:
        """Call something where the listener is called."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


@dataclass(frozen=True, slots=True)
class Crews:
    """Makes the crews of a front, whose workers are all of one world."""

    clock: ports.Clock
    connect: Callable[[StageSpec, str, Listener], WorkerLinks]
    """Makes the links to workers that run a spec's model, in a lane. Raises ModelError where there can be none."""

    def make(self, place: str, spec: StageSpec, count: int, lane: str = "") -> Crew:
        """Make a crew of so many workers; `place` names it in texts. Raises ModelError as `connect` does.

        `lane`: the member or variant whose workers they are, or "copies" or "parity"; empty: the stage's own.
        """
        return Crew(place, Pool(count), self.clock, partial(self.connect, spec, lane))


def local_crews(torch_threads: int) -> Crews:
    """Return what makes crews of processes on this host."""

    def connect(spec: StageSpec, _lane: str, listener: Listener) -> Links:
        return Links(listener, timeout=spec.workers.timeout, command=command_of(spec, torch_threads))

    return Crews(Clock(), connect)


class Crew:
    """The workers of one front, or of one lane of it."""

    def __init__(self, place: str, pool: Pool, clock: ports.Clock, connect: Callable[[Listener], WorkerLinks]) -> None:
        """`place` names the stage in texts; `connect` makes the links to its workers, which may call at once.

        Workers that the pool does not start come by themselves, as many as somebody starts on other hosts.
        """
        self._place = place
        self._pool = pool
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._act)
        self._hello: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._driver: Driver | None = None
        self._work: Work | None = None
        self._closed = False
        self._versions: dict[int, str] = {}  # of their models, by worker
        self._seen: dict[str, None] = {}  # versions, in the order in which they came
        self.deaths = 0
        self._running: dict[int, Run] = {}  # by worker
        self._links = connect(self)

    async def first(self) -> dict[str, Any]:
        """Start the workers; what the first one's Hello says. Raises ModelError where the model cannot be loaded.

        Workers of other hosts are waited for without end.
        """
        if not self._pool.starts:
            return await self._hello
        self._act()
        try:
            return await asyncio.wait_for(asyncio.shield(self._hello), 2 * LOAD_SECONDS)
        except TimeoutError as error:
            raise ModelError(f"{self._place}: no worker was ready within {2 * LOAD_SECONDS:g} s") from error

    def begin(self, driver: Driver, work: Work) -> None:
        """Give the driver the workers that are ready, and all that become so."""
        self._driver, self._work = driver, work
        for worker, phase in self._pool.phases().items():
            if phase is Phase.READY:
                driver.attach(worker)

    def submit(self, worker: int, job: Job) -> None:
        self._pool.began(self._clock.now(), worker)
        self._running[worker] = Run(job.requests, self._clock.monotonic())
        self._links.call(lambda: self._begin(worker, job))

    def resize(self, count: int) -> None:
        """Have `count` workers from now on; those that are over drain."""
        self._pool.resize(count)
        self._act()

    @property
    def wanted(self) -> int:
        return self._pool.count

    @property
    def alive(self) -> int:
        """How many there are, those that load and those that drain too."""
        return len(self._pool.phases())

    @property
    def busy(self) -> set[Place]:
        """The records that workers have been running for a while, within their time-out."""
        return busy_places(self._running.values(), self._clock.monotonic())

    def versions(self) -> dict[str, int]:
        """Return how many workers have each version of the model that one has had; may be called from any thread."""
        held = list(self._versions.values())
        return {version: held.count(version) for version in list(self._seen)}

    def close(self, _timeout: float) -> bool:
        """End all workers; blocks for a moment."""
        self._closed = True
        self._links.close()
        return True

    # On the loop -----------------------------------------------------------------------------------------------

    def _act(self) -> None:
        now = self._clock.now()
        for action in self._pool.take(now):
            if isinstance(action, Start):
                self._links.spawn(action.worker)
            elif self._driver is None or action.loading or self._driver.drain(action.worker):
                self._bye(action.worker)
        wake = self._pool.next_wake(now)
        if wake is not None:
            self._alarm.within(wake - now)

    def _bye(self, worker: int) -> None:
        self._versions.pop(worker, None)
        self._links.bye(worker)

    def _is_ready(self, worker: int, hello: dict[str, Any]) -> None:
        if not self._pool.ready(self._clock.now(), worker):
            self._bye(worker)
            return
        if not self._hello.done():
            self._hello.set_result(hello)
        self._count()
        if self._driver is not None:
            self._driver.attach(worker)

    def _count(self) -> None:
        if not self._pool.starts:
            log.info("%s: %d of %d workers are connected", self._place, self._pool.there, self._pool.count)

    def _is_executed(self, worker: int, job: Job, done: Executed) -> None:
        self._running.pop(worker, None)
        bye = self._pool.completed(self._clock.now(), worker)
        assert self._driver is not None  # it submitted the batch
        self._driver.executed(job, done)
        if bye:
            self._bye(worker)

    def _is_lost(self, worker: int, results: list[Result | None], blamed: list[int], why: str, *, failed: bool) -> None:
        self.deaths += 1
        if self._driver is None and not self._hello.done():
            if self._pool.starts and self.deaths == _MOST_LOADS:
                why, failed = f"its process ended {self.deaths} times while it was loaded; the last: {why}", True
            if failed:
                self._hello.set_exception(ModelError(f"{self._place}: {why}"))
                return
        self._versions.pop(worker, None)
        known = self._pool.phases().get(worker)
        log.error("%s: worker %d is lost: %s", self._place, worker, why)
        self._running.pop(worker, None)
        self._pool.lost(self._clock.now(), worker)
        self._count()
        if self._driver is not None and known not in (None, Phase.LOADING):
            self._driver.lose(worker, results, blamed, why, counted=known is not Phase.DRAINING)
        self._act()

    def _is_broken(self, error: Exception) -> None:
        if self._driver is not None:
            self._driver.crashed(error)
        elif not self._hello.done():
            self._hello.set_exception(error)

    def _asks_to_drain(self, worker: int) -> None:
        for action in self._pool.asked_to_drain(self._clock.now(), worker):
            if self._driver is None or action.loading or self._driver.drain(action.worker):
                self._bye(action.worker)
            self._count()
        self._act()

    # On the links' thread --------------------------------------------------------------------------------------

    def _begin(self, worker: int, job: Job) -> None:
        assert self._work is not None  # batches come from its driver
        prepared = self._work.prepare(job)
        if not prepared.inputs:
            self._tell(self._is_executed, worker, job, prepared.executed(0.0, self._clock.monotonic()))
            return
        queries = [
            {"inputs": dict(each), "parameters": each.parameters, "id": each.request_id, "key": each.key}
            for each in prepared.inputs
        ]
        self._links.send(worker, prepared, queries, singly=prepared.singly)

    def ready(self, worker: int, hello: dict[str, Any]) -> None:
        version = self._versions[worker] = str(hello.get("version", ""))
        if self._seen and version not in self._seen:
            log.warning(
                "%s: worker %d has version %r of the model; others had %s",
                self._place, worker, version, ", ".join(map(repr, self._seen)),
            )  # fmt: skip
        self._seen[version] = None
        self._tell(self._is_ready, worker, hello)

    def broken(self, error: Exception) -> None:
        self._tell(self._is_broken, error)

    def draining(self, worker: int) -> None:
        self._tell(self._asks_to_drain, worker)

    def answered(self, worker: int, job: Prepared, first: int, results: list[Any], seconds: float) -> None:
        assert self._work is not None
        job.version = self._versions.get(worker)
        for place, answer in enumerate(results, first):
            job.results[job.places[place]] = self._work.result(job, place, answer, seconds)
        if first + len(results) == len(job.inputs):
            self._tell(self._is_executed, worker, job.batch, job.executed(seconds, self._clock.monotonic()))

    def lost(self, worker: int, job: Prepared | None, answered: int, why: str, *, failed: bool) -> None:
        results: list[Result | None] = []
        blamed: list[int] = []
        if job is not None:
            results = job.results
            blamed = job.places[answered : answered + 1] if job.singly else job.places[answered:]
        self._loop.call_soon_threadsafe(
            lambda: None if self._closed else self._is_lost(worker, results, blamed, why, failed=failed)
        )

    def _tell(self, what: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, *arguments)
