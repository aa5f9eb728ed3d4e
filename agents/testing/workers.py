"""A stage's workers in memory: each runs a batch when its time is over, in virtual time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from spillway.agents.run.stage_context import Workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.core.actions import Executed
    from spillway.agents.core.batching import Batch
    from spillway.agents.core.crash_suspects import Place
    from spillway.agents.memory.processes import Process
    from spillway.agents.run.stage import Stage


class MemoryWorkers(Workers):
    """Runs batches in the process of their stage, which may die at each."""

    def __init__(
        self,
        process: Process,
        stage: Stage,
        run: Callable[[int, Batch, float | None], Executed],
        duration: Callable[[int], float] | None,
    ) -> None:
        """`run` runs a batch at once; `duration`: seconds that a batch of n is to take, None for what it takes."""
        self._process, self._stage = process, stage
        self._run, self._duration = run, duration

    @property
    def busy(self) -> set[Place]:
        """Nothing: no watchdog asks."""
        return set()

    def submit(self, worker: int, batch: Batch) -> None:
        seconds = None if self._duration is None else self._duration(len(batch.requests))
        self._process.after(seconds or 0.0, partial(self._execute, worker, batch, seconds))

    def _execute(self, worker: int, batch: Batch, seconds: float | None) -> None:
        done = self._process.reach(lambda: self._run(worker, batch, seconds))
        done.ended = asyncio.get_running_loop().time()
        self._stage.executed(batch, done)
