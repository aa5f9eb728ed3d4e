"""The workers of a dispatch, beside a stage's own: given extras, whose answers settle what is not settled yet.

The dispatch decides (`spillway.agents.core.dispatch`), and hears the answers. Answers are made into results
off the loop.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from spillway.agents.core.actions import Failed
from spillway.agents.core.dispatch import WHY_PAUSED, Extra
from spillway.agents.live.stage.batch_work import Prepared
from spillway.agents.models.model_errors import RaisedLog

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from spillway.agents.core.actions import Executed, Result
    from spillway.agents.core.batching import Batch
    from spillway.agents.core.crash_suspects import Place
    from spillway.agents.core.dispatch import Dispatch, Made, Recovery
    from spillway.agents.live.stage.batch_work import BatchWork
    from spillway.agents.live.stage.coded import CodeWork
    from spillway.agents.live.stage.crew import Crew
    from spillway.agents.run.stage import Stage

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")


class CopyWork:
    """Extras that are a batch once more."""

    def __init__(self, work: BatchWork, model: str) -> None:
        """`model`: what the copies run."""
        self._work = work
        self._model = model

    def prepare(self, job: Extra) -> Prepared:
        prepared = self._work.prepare(job.group.batches[0])
        job.outputs = [None] * len(prepared.results)
        return Prepared(job, prepared.results, prepared.inputs, prepared.places, prepared.looked)

    def result(self, prepared: Prepared, place: int, answer: Mapping[str, Any], seconds: float) -> None:
        """Keep an answer; an error is none, as the batch's own worker may do better."""
        output = self._work.output(prepared, place, answer) if "outputs" in answer else None
        prepared.batch.outputs[prepared.places[place]] = None if isinstance(output, Failed) else output
        prepared.batch.seconds, prepared.batch.version = seconds, prepared.version

    def recover(self, recovery: Recovery) -> Made:
        """Make the answers that a dispatch asks for; off the loop."""
        (batch,) = recovery.group.batches
        (extra,) = recovery.group.rows.values()
        return [(batch, self._work.made(batch, extra.outputs, extra.seconds, self._model, extra.version))]

    def grade(self, grading: Recovery) -> tuple[int, int]:
        raise NotImplementedError(f"copies are not graded: {grading}")


class SharedWork:
    """Extras, and the lane's own batches."""

    def __init__(self, own: BatchWork, extra: CopyWork | CodeWork) -> None:
        self._own = own
        self._extra = extra

    def prepare(self, job: Any) -> Prepared:
        return self._extra.prepare(job) if isinstance(job, Extra) else self._own.prepare(job)

    def result(self, prepared: Prepared, place: int, answer: Mapping[str, Any], seconds: float) -> Result | None:
        if isinstance(prepared.batch, Extra):
            self._extra.result(prepared, place, answer, seconds)
            return None
        return self._own.result(prepared, place, answer, seconds)


@dataclass(frozen=True, slots=True)
class Beside:
    """A dispatch, the workers of each of its rows, and how their work is made."""

    dispatch: Dispatch
    crews: Sequence[Crew]
    work: Callable[[BatchWork], CopyWork | CodeWork]
    per: int = 0
    """The stage's own workers for one here, rounded up; 0: as many as there are, whatever the stage has."""
    stage: str = ""

    def resize(self, workers: int) -> None:
        """Follow the stage's own workers, which are so many from now on."""
        for crew in self.crews if self.per else ():
            crew.resize(-(-workers // self.per))

    async def ready(self) -> None:
        """Start the workers. Raises ModelError where their model cannot be loaded."""
        for crew in self.crews:
            await crew.first()

    def close(self) -> None:
        for crew in self.crews:
            crew.close(1.0)


class Extras:
    """The extras of one front, and those who run them; on the loop."""

    def __init__(self, beside: Beside, work: BatchWork, loop: asyncio.AbstractEventLoop, stage: Stage) -> None:
        self._dispatch = beside.dispatch
        self._crews = beside.crews
        self._work = beside.work(work)
        self._own = work
        self._loop = loop
        self._stage = stage
        self._told = beside.dispatch.paused
        self._raised = RaisedLog(beside.stage)

    def begin(self) -> None:
        for row, crew in enumerate(self._crews):
            if self._dispatch.shared:
                crew.begin(_SharedRow(self._dispatch, row, self._stage), SharedWork(self._own, self._work))
            else:
                crew.begin(_Row(self._dispatch, row, self._stage), self._work)

    @property
    def busy(self) -> set[Place]:
        """The records of the lane's batches that shared workers have been running for a while."""
        return set().union(*(crew.busy for crew in self._crews))

    def submit(self, worker: int, batch: Batch) -> None:
        """Run a batch of the lane on a shared worker, by its number in the lane."""
        row, own = self._dispatch.worker_of(worker)
        self._crews[row].submit(own, batch)

    def pump(self, now: float) -> None:
        for extra in self._dispatch.take_extras(now):
            self._crews[extra.row].submit(extra.worker, extra)
        for recovery in self._dispatch.take_recoveries():
            self._off(self._work.recover, recovery, self._made)
        for grading in self._dispatch.take_gradings():
            self._off(self._work.grade, grading, self._graded)
        if self._dispatch.paused != self._told:
            self._told = self._dispatch.paused
            log.warning("coding %s", "goes on" if not self._told else f"pauses: {WHY_PAUSED[self._told]}")

    def _off(self, work: Callable[[Recovery], _Result], what: Recovery, then: Callable[[_Result], None]) -> None:
        """Do work off the loop, and then hear on it what came of it; nothing, where it raises.

        A batch's own worker answers it all the same.
        """

        def guarded() -> tuple[_Result] | None:
            try:
                return (work(what),)
            except BaseException as error:  # noqa: BLE001 - what the author's code and answers do when they are read
                self._raised.words(error, "making answers of others'")
                return None

        def done(doing: asyncio.Future[tuple[_Result] | None]) -> None:
            if not doing.cancelled() and (made := doing.result()) is not None:
                then(*made)

        self._loop.run_in_executor(None, guarded).add_done_callback(done)

    def _made(self, made: Made) -> None:
        for batch, results in made:
            self._stage.changed(partial(self._dispatch.recovered, batch=batch, results=results))

    def _graded(self, grades: tuple[int, int]) -> None:
        if self._dispatch.agreement is not None:
            self._dispatch.agreement.hear(*grades)


class _Row:
    """What a crew tells of one row's workers (`spillway.agents.live.stage.crew.Driver`)."""

    def __init__(self, dispatch: Dispatch, row: int, stage: Stage) -> None:
        self._dispatch = dispatch
        self._row = row
        self._stage = stage
        self.crashed = stage.crashed

    def attach(self, worker: int) -> None:
        self._stage.changed(lambda _now: self._dispatch.attach(self._row, worker))

    def drain(self, worker: int) -> bool:
        return self._dispatch.drain(self._row, worker)

    def lose(self, worker: int, *_what: object, **_more: object) -> None:
        self._stage.changed(lambda _now: self._dispatch.lose(self._row, worker))

    def executed(self, extra: Any, _done: Executed) -> None:
        self._stage.changed(partial(self._dispatch.done, extra=extra))


class _SharedRow(_Row):
    """The same of workers that run the lane's batches, too."""

    def attach(self, worker: int) -> None:
        self._dispatch.attach(self._row, worker)
        self._stage.attach(self._dispatch.number_of(self._row, worker))

    def drain(self, worker: int) -> bool:
        self._dispatch.drain(self._row, worker)
        return self._stage.drain(self._dispatch.number_of(self._row, worker))

    def lose(self, worker: int, *what: Any, **more: Any) -> None:
        self._dispatch.lose(self._row, worker)
        self._stage.lose(self._dispatch.number_of(self._row, worker), *what, **more)

    def executed(self, job: Any, done: Executed) -> None:
        if isinstance(job, Extra):
            super().executed(job, done)
        else:
            self._stage.executed(job, done)
