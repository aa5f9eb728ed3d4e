"""A stage's workers that are threads of its process: further copies of the model are loaded, and let go, as it serves.

The pool says which there are to be (`spillway.agents.core.pool`), and the core hears which are ready
(`StageCore.attach`, `drain`). A copy is loaded on the thread that will run it, one at a time, so the loop goes on; a
copy that cannot be loaded is tried again, ever later, and the others serve.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from spillway.agents.core.pool import Pool, Start
from spillway.agents.models.execution import Instances, Runner
from spillway.agents.models.model_errors import words_of
from spillway.agents.run.alarm import Alarm

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from spillway.agents.core.actions import Executed
    from spillway.agents.core.batching import Batch
    from spillway.agents.core.crash_suspects import Place
    from spillway.agents.live.clock import Clock
    from spillway.agents.live.stage.crew import Driver

log = logging.getLogger(__name__)


class Threads:
    """The worker threads of one front. Those that `models` has are there from the start, numbered from 0."""

    def __init__(
        self,
        place: str,
        models: dict[int, Any],
        runners: Sequence[Runner],
        load: Callable[[], Any],
        *,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        driver: Driver,
        work: Callable[[int, Batch], Executed],
        pause: float = 0.0,
    ) -> None:
        """`place` names the stage in texts; `load` gives one more copy of the model, for `work` to find in `models`.

        `runners`: the threads that those which are there were made on.

        `pause`: seconds that each copy waits before that, beside the others: what an emulated accelerator loads for.
        """
        self._place = place
        self._models = models
        self._load_one = load
        self._pause = pause
        self._clock = clock
        self._loop = loop
        self._driver = driver
        self._instances = Instances(runners, loop, work=work, done=self._executed, broken=driver.crashed)
        self._alarm = Alarm(self._act)
        self._loading = threading.Lock()
        self._closed = False
        self._pool = Pool(len(models))
        for action in self._pool.take(clock()):
            self._pool.ready(clock(), action.worker)

    def submit(self, worker: int, batch: Batch) -> None:
        self._pool.began(self._clock(), worker)
        self._instances.submit(worker, batch)

    def resize(self, count: int) -> None:
        """Have `count` workers from now on; those that are over drain."""
        self._pool.resize(count)
        self._act()

    @property
    def busy(self) -> set[Place]:
        """Nothing: what threads run is known to the guard."""
        return set()

    def close(self, timeout: float) -> bool:
        self._closed = True
        return self._instances.close(timeout)

    # On the loop -----------------------------------------------------------------------------------------------

    def _act(self) -> None:
        now = self._clock()
        for action in self._pool.take(now):
            if isinstance(action, Start):
                runner = Runner(f"instance-{action.worker}")
                runner.submit(partial(self._load, action.worker, runner))
            elif not action.loading and self._driver.drain(action.worker):
                self._end(action.worker)
        wake = self._pool.next_wake(now)
        if wake is not None:
            self._alarm.within(wake - now)

    def _is_loaded(self, worker: int, runner: Runner, model: Any) -> None:
        if self._closed or not self._pool.ready(self._clock(), worker):
            runner.end()  # it is not wanted any more
            return
        self._models[worker] = model
        self._instances.add(worker, runner)
        self._driver.attach(worker)

    def _is_lost(self, worker: int, runner: Runner, error: BaseException) -> None:
        runner.end()
        log.error("%s: another copy of its model cannot be loaded; trying again: %s", self._place, words_of(error))
        self._pool.lost(self._clock(), worker)
        if not self._closed:
            self._act()

    def _executed(self, batch: Batch, done: Executed) -> None:
        over = self._pool.completed(self._clock(), batch.worker)
        self._driver.executed(batch, done)
        if over:
            self._end(batch.worker)

    def _end(self, worker: int) -> None:
        self._instances.end(worker)
        del self._models[worker]

    # On a copy's thread ----------------------------------------------------------------------------------------

    def _load(self, worker: int, runner: Runner) -> None:
        time.sleep(self._pause)
        with self._loading:
            try:
                model = self._load_one()
            except BaseException as error:  # noqa: BLE001 - user code
                self._tell(self._is_lost, worker, runner, error)
                return
        self._tell(self._is_loaded, worker, runner, model)

    def _tell(self, what: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, *arguments)
