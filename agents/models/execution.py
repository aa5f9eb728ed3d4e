"""Running batches off the event loop: one thread per model instance.

Heartbeats and fetching go on while a model runs. A model instance is made, and entered, by one thread alone, so models
need no locks and may keep what belongs to a thread. A thread's wake-up costs a fraction of what an executor's future
does.
"""

from __future__ import annotations

import os
import queue
import threading
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from spillway.agents.models.contract import end_if_forked

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

Job = TypeVar("Job")
Result = TypeVar("Result")


class Runner:
    """A thread that does what it is given, one thing after the other: of a model's copy all of it, from its making."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], object]) -> None:
        """Have something done that raises nothing."""
        self._jobs.put(job)

    def begin(self, function: Callable[[], Result]) -> Future[Result]:
        """Call a function on the thread; the future is what it returns, or raises."""
        future: Future[Result] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - the caller's
                future.set_exception(error)

        self.submit(run)
        return future

    def call(self, function: Callable[[], Result]) -> Result:
        """Return what a function returns on the thread, or raise what it raises; waits for it."""
        return self.begin(function).result()

    def end(self) -> None:
        """End the thread once it has done what it was given."""
        self._jobs.put(None)

    def join(self, timeout: float) -> bool:
        """Wait for its end; False if it still runs."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class Instances(Generic[Job]):
    """A thread for each of a stage's model instances; `done` is called on the loop with what `work` returned.

    Instances may come and go (`add`, `end`). `work(instance, job)` runs on the instance's thread and must not raise: an
    error of its own is no model's, and is given to `broken` on the loop; nothing more is run then.
    """

    def __init__(
        self,
        runners: Iterable[Runner],
        loop: asyncio.AbstractEventLoop,
        *,
        work: Callable[[int, Job], Any],
        done: Callable[[Job, Any], object],
        broken: Callable[[BaseException], None],
    ) -> None:
        """`runners`: the threads of those that are there from the start, numbered from 0."""
        self._loop = loop
        self._work = work
        self._done = done
        self._broken = broken
        self._runners = dict(enumerate(runners))
        self._failed = False

    def add(self, instance: int, runner: Runner) -> None:
        """Take one more instance, under a number that none had before: the thread that its model was made on."""
        self._runners[instance] = runner

    def end(self, instance: int) -> None:
        """End the thread of an instance once it has done what it was given."""
        self._runners.pop(instance).end()

    def submit(self, instance: int, job: Job) -> None:
        self._runners[instance].submit(partial(self._run, instance, job))

    def _run(self, instance: int, job: Job) -> None:
        if self._failed:
            return
        process = os.getpid()
        try:
            result = self._work(instance, job)
            end_if_forked(process)
        except BaseException as error:  # noqa: BLE001 - a thread that dies in silence would hang its batch
            end_if_forked(process, error)
            self._failed = True
            self._call(self._broken, error)
            return
        self._call(self._done, job, result)

    def _call(self, function: Callable[..., object], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def close(self, timeout: float) -> bool:
        """End the threads once they have done what they were given; False if one still runs after `timeout` seconds."""
        runners = list(self._runners.values())
        for runner in runners:
            runner.end()
        return all(runner.join(timeout / len(runners)) for runner in runners)
