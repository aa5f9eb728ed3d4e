"""Running batches off the event loop: one thread per model instance, and, on request, one child process behind it.

Heartbeats and fetching go on while a model runs. A model instance is never entered by two threads, so models need no
locks. A thread's wake-up costs a fraction of what an executor's future does.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

Job = TypeVar("Job")


class Instances(Generic[Job]):
    """A thread for each of a stage's model instances; `done` is called on the loop with what `work` returned.

    Instances may come and go (`add`, `end`). `work(instance, job)` runs on the instance's thread and must not raise: an
    error of its own is no model's, and is given to `broken` on the loop.
    """

    def __init__(
        self,
        count: int,
        loop: asyncio.AbstractEventLoop,
        *,
        work: Callable[[int, Job], Any],
        done: Callable[[Job, Any], None],
        broken: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._work = work
        self._done = done
        self._broken = broken
        self._jobs: dict[int, queue.SimpleQueue[Job | None]] = {}
        self._threads: dict[int, threading.Thread] = {}
        for instance in range(count):
            self.add(instance)

    def add(self, instance: int) -> None:
        """Start the thread of one more instance, under a number that none had before."""
        jobs = self._jobs[instance] = queue.SimpleQueue()
        name = f"instance-{instance}"
        thread = threading.Thread(target=self._serve, args=(instance, jobs), name=name, daemon=True)
        self._threads[instance] = thread
        thread.start()

    def end(self, instance: int) -> None:
        """End the thread of an instance once it has done what it was given."""
        self._jobs.pop(instance).put(None)
        del self._threads[instance]

    def submit(self, instance: int, job: Job) -> None:
        self._jobs[instance].put(job)

    def _serve(self, index: int, jobs: queue.SimpleQueue[Job | None]) -> None:
        while (job := jobs.get()) is not None:
            try:
                result = self._work(index, job)
            except BaseException as error:  # noqa: BLE001 - a thread that dies in silence would hang its batch
                self._call(self._broken, error)
                return
            self._call(self._done, job, result)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def close(self, timeout: float) -> bool:
        """End the threads once they have done what they were given; False if one still runs after `timeout` seconds."""
        for jobs in self._jobs.values():
            jobs.put(None)
        threads = list(self._threads.values())
        for thread in threads:
            thread.join(timeout / len(threads))
        return not any(thread.is_alive() for thread in threads)
