"""Work beside the loop, one job after another on a thread of its own: computing and updating, and copying.

A job says what to run there and what to call on the loop with what came out; a job that raises ends the member.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from spillway.agents.models.execution import Instances

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.models.execution import Runner

    _Job = tuple[Callable[[], Any], Callable[[Any], object]]  # what to run there, and whom to give what it returned

_T = TypeVar("_T")


class Thread:
    """Runs jobs in their order, on a runner's thread."""

    def __init__(
        self, runner: Runner, loop: asyncio.AbstractEventLoop, broken: Callable[[BaseException], None]
    ) -> None:
        """`broken` is called on the loop with what a job raised; no further one is run."""
        self._instances: Instances[_Job] = Instances(
            [runner], loop, work=lambda _, job: job[0](), done=lambda job, result: job[1](result), broken=broken
        )

    def submit(self, run: Callable[[], Any], done: Callable[[Any], object]) -> None:
        """Run `run` after what was submitted before; `done` is called on the loop with what it returned."""
        self._instances.submit(0, (run, done))

    async def call(self, run: Callable[[], _T]) -> _T:
        """Return what `run` returns, after what was submitted before."""
        given: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self.submit(run, partial(hand_over, given))
        return await given

    def close(self, timeout: float) -> bool:
        """End the thread once it has done what it was given; False if it still runs after `timeout` seconds."""
        return self._instances.close(timeout)


def hand_over(given: asyncio.Future[_T], result: _T) -> None:
    """Set a future's result, unless whoever waited for it has been overtaken."""
    if not given.done():
        given.set_result(result)
