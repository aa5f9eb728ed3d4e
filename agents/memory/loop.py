"""An event loop in virtual time, whose callbacks belong to processes that can be killed.

Rules:

* A callback that is ready takes a microsecond, so that one which spins does not stop the time, and where none is ready
  the time jumps to the next timer, or is waited for (`pace`). Timers of one moment run in the order in which they were
  made. So a seed makes a run, whatever the machine does.
* A callback belongs to the process that its context names; the world's own belong to none. What belongs to
  a process that is dead is dropped, and what belongs to one that is stopped waits until it goes on.
* A killed process runs no more of its code: neither its callbacks nor its coroutines' `finally` clauses, as after a
  SIGKILL. Its coroutines are closed at the end of the run (`close`), when its ports reach nothing any more.
* A function for an executor runs at the start or at the end of the time that it takes, as the world says.
"""

from __future__ import annotations

import asyncio
import heapq
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVarTuple

from spillway.lineage.errors import SpillwayError

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Coroutine, Iterator

Ts = TypeVarTuple("Ts")

_CALLBACK: Final = 1e-6  # seconds
_MOST_TASKS: Final = 1_000  # that are kept before those that have ended are let go
_CLOSINGS: Final = 20  # times that a coroutine which goes on after it is closed is closed again


class Owner(Protocol):
    """What a callback can belong to."""

    alive: bool
    withheld: list[asyncio.Handle] | None  # what came since it was stopped; None while it runs


PROCESS: Final[ContextVar[Owner | None]] = ContextVar("process", default=None)  # whose code runs


class KilledError(BaseException):
    """The process has died at this call. Its code gets no further, and does not catch it."""


class IdleError(SpillwayError):
    """A run waits for something that can no longer happen."""


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio loop without sockets, threads or a clock.

    `start`: unix seconds. `takes`: how long a function given to an executor takes, in seconds, and whether it runs at
    the end of them rather than at their start.
    """

    def __init__(self, start: float, takes: Callable[[], tuple[float, bool]] = lambda: (0.0, False)) -> None:
        super().__init__()
        self.now = start
        self.pace: Callable[[float], float] | None = None  # waits until a time, and returns what time it is then
        self._takes = takes
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._serial = count()
        self._tasks: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._task)  # type: ignore[arg-type] # it takes a context, as of 3.11
        self.set_exception_handler(self._failed)
        self.failures: list[BaseException] = []  # of callbacks and tasks that nobody waited for

    def time(self) -> float:
        return self.now

    # Timers ----------------------------------------------------------------------------------------------------

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._serial), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing: it is passed over when its time comes."""

    def run_in_executor(  # type: ignore[override]
        self, _executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        seconds, late = self._takes()
        work = partial(func, *args)
        if not late:
            done = self.create_future()
            _settle(done, work)
            work = done.result  # type: ignore[assignment] # likewise without arguments
        self.call_later(seconds, _settle, future, work)
        return future

    @contextmanager
    def running(self) -> Iterator[None]:
        """Be the running loop, for who steps through it by himself."""
        asyncio._set_running_loop(self)  # noqa: SLF001 - as `run_forever` does
        try:
            yield
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001

    # Running ---------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Run the next callback that is due; return False where there is none."""
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        timers = self._timers
        if ready and not (timers and timers[0][0] <= self.now):
            self.now = self.now + _CALLBACK if self.pace is None else self.pace(self.now)
            self.run_handle(ready.popleft())
        elif timers:
            when, _, handle = heapq.heappop(timers)
            self.now = max(self.now, when if self.pace is None else self.pace(when))
            self.run_handle(handle)
        else:
            return False
        return True

    def _run_once(self) -> None:
        if not self.step() and not self._stopping:  # type: ignore[attr-defined]
            raise IdleError("nothing is under way, and the run has not ended")

    def run_handle(self, handle: asyncio.Handle) -> None:
        """Run a callback, unless its process is dead; where it is stopped, keep it there."""
        if handle.cancelled():
            return
        process = handle._context.get(PROCESS)  # type: ignore[attr-defined]  # noqa: SLF001
        if process is not None:
            if not process.alive:
                return
            if process.withheld is not None:
                process.withheld.append(handle)
                return
        handle._run()  # noqa: SLF001

    # What asyncio asks of a loop -------------------------------------------------------------------------------

    def _task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], *, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, context=context if context is not None else copy_context())
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
        if len(self._tasks) > _MOST_TASKS:
            self._tasks = [each for each in self._tasks if not each.done()]
        self._tasks.append(task)
        return task

    def _failed(self, _loop: asyncio.AbstractEventLoop, what: dict[str, Any]) -> None:
        error = what.get("exception")
        if error is not None and not isinstance(error, KilledError):
            self.failures.append(error)

    @property
    def unheard(self) -> list[BaseException]:
        """What tasks have raised that nobody has asked for."""
        done = [task for task in self._tasks if task.done() and task._log_traceback]  # noqa: SLF001
        raised = [task._exception for task in done]  # noqa: SLF001
        return [error for error in raised if error is not None and not isinstance(error, KilledError)]

    def _write_to_self(self) -> None:
        """Nothing: no thread waits for this loop."""

    def _process_events(self, _events: object) -> None:
        """Nothing: there is no selector."""

    def _asyncgen_firstiter_hook(self, agen: Any) -> None:
        """Keep a generator alive: what is left of a killed process may not go on because it is collected."""
        self._asyncgens.add(agen)  # type: ignore[attr-defined]

    def _asyncgen_finalizer_hook(self, _agen: Any) -> None:
        """Nothing, for the same reason."""

    def close(self) -> None:
        """Close all coroutines that have not ended. Their processes should be dead: then they reach nothing."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            if not task.done():
                _close(task.get_coro())
        self._timers.clear()
        super().close()


def _settle(future: asyncio.Future[Any], work: Callable[[], Any]) -> None:
    try:
        result = work()
    except Exception as error:  # noqa: BLE001 - it is raised where the result is awaited
        if not future.done():
            future.set_exception(error)
    else:
        if not future.done():
            future.set_result(result)


def _close(coroutine: Any) -> None:
    for _ in range(_CLOSINGS):
        try:
            coroutine.close()
        except BaseException:  # noqa: BLE001, S112 - it is the code of a dead process: whatever it raises is nobody's
            continue
        return
