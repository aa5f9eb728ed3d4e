"""Workers in memory that would be processes: each loads its model and runs batches as those do, in virtual time.

They live in the process of their front, and die with it. One may die by itself, too: at a batch, where it is to be
killed; where its model raises SystemExit, as in a process; and where a batch takes longer than the workers' timeout.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.live.stage.crew import Crews
from spillway.agents.memory.ports import MemoryClock
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.loading import TORCH_THREADS
from spillway.agents.models.model_errors import words_of
from spillway.agents.testing.conditions import name_of
from spillway.agents.workers import local
from spillway.agents.workers.processes import job_of
from spillway.agents.workers.shim import answers_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.memory.processes import Process
    from spillway.agents.models.contract import Answer
    from spillway.agents.testing.conditions import Conditions
    from spillway.agents.workers.links import Listener
    from spillway.topology.spec import StageSpec

_RESTART: Final = 0.1  # seconds until a worker that died is ready again


class Workshop:
    """The workers of all stages, by name, and their models: one that is started again has that of the one before."""

    def __init__(self, conditions: Conditions, died: Callable[[str], None]) -> None:
        """`died` hears the names of workers that died by themselves."""
        self.conditions, self.died = conditions, died
        self._models: dict[tuple[str, str, int], tuple[Any, dict[str, Any]]] = {}
        self._links: dict[str, list[MemoryLinks]] = {}

    def crews(self, process: Process) -> Crews:
        """Return what makes the crews of a front, which lives in this process."""

        def connect(spec: StageSpec, lane: str, listener: Listener) -> MemoryLinks:
            name = name_of(spec.name, lane)
            made = MemoryLinks(self, process, listener, spec, name, self.conditions.duration(spec, lane))
            self._links[name] = [*(each for each in self._links.get(name, ()) if each.alive), made]
            return made

        return Crews(MemoryClock(process), connect)

    def load(self, name: str, spec: StageSpec, place: int) -> tuple[Any, dict[str, Any]]:
        """Return the model of a worker, and what its Hello says. Raises ModelError where it cannot be loaded."""
        key = name, repr(spec.arguments), place
        if key not in self._models:
            self._models[key] = local.load(job_of(spec, TORCH_THREADS))
        return self._models[key]

    def kill(self, name: str) -> None:
        """Kill a worker of this name, if there is one: one that runs a batch rather than another."""
        workers = [(links, each) for links in self._links.get(name, ()) if links.alive for each in links.numbers()]
        if workers:
            links, number = min(workers, key=lambda each: not each[0].runs(each[1]))
            links.process.after(0.0, partial(links.lose, number, 0, "it was killed"))


@dataclass(eq=False, slots=True)
class _Worker:
    place: int  # among those of its links
    model: Any = None
    job: Any = None


class MemoryLinks:
    """The workers of one crew (`spillway.agents.live.stage.crew.WorkerLinks`)."""

    def __init__(
        self,
        workshop: Workshop,
        process: Process,
        listener: Listener,
        spec: StageSpec,
        name: str,
        duration: Callable[[int], float] | None,
    ) -> None:
        """`duration`: of a batch of n, in seconds; None: what its model takes."""
        self.process = process
        self._workshop, self._listener, self._spec, self._name = workshop, listener, spec, name
        self._duration = duration
        self._workers: dict[int, _Worker] = {}
        self._died: set[int] = set()  # places whose worker has died

    @property
    def alive(self) -> bool:
        return self.process.alive

    def numbers(self) -> list[int]:
        """Return the workers that are ready."""
        return [number for number, worker in self._workers.items() if worker.model is not None]

    def runs(self, number: int) -> bool:
        return self._workers[number].job is not None

    # For the crew ----------------------------------------------------------------------------------------------

    def spawn(self, worker: int) -> None:
        taken = {each.place for each in self._workers.values()}
        place = min(set(range(len(taken) + 1)) - taken)
        made = self._workers[worker] = _Worker(place)
        self.process.after(_RESTART if place in self._died else 0.0, partial(self._load, worker, made))

    def send(self, worker: int, job: Any, queries: list[dict[str, Any]], *, singly: bool) -> None:
        there = self._workers.get(worker)
        if there is None:
            return  # it was lost a moment ago, and the loop hears so
        there.job = job
        conditions, timeout, size = self._workshop.conditions, self._spec.workers.timeout, len(queries)
        seconds = None if self._duration is None else self._duration(size)
        run = partial(self._run, worker, there, queries, seconds, singly=singly)
        if conditions.dies(self._name):
            upto = conditions.random.randrange(size) if singly else 0
            self.process.after((seconds or 0.0) * conditions.random.random(), partial(run, upto=upto))
        elif seconds is not None and seconds > timeout:
            why = f"it ran a batch of {size} for more than {timeout:g} s, its timeout"
            self.process.after(timeout, partial(self.lose, worker, 0, why))
        else:
            self.process.after(seconds or 0.0, run)

    def bye(self, worker: int) -> None:
        self._workers.pop(worker, None)

    def call(self, what: Callable[[], None]) -> None:
        what()

    def close(self) -> None:
        self._workers.clear()

    # Inside ----------------------------------------------------------------------------------------------------

    def _load(self, number: int, worker: _Worker) -> None:
        if self._workers.get(number) is not worker:
            return  # it is not wanted any more
        try:
            worker.model, hello = self._workshop.load(self._name, self._spec, worker.place)
        except Exception as error:  # noqa: BLE001 - user code; the front says it
            del self._workers[number]
            self._listener.lost(number, None, 0, words_of(error), failed=True)
        else:
            self._listener.ready(number, hello)

    def _run(
        self,
        number: int,
        worker: _Worker,
        queries: list[dict[str, Any]],
        seconds: float | None,
        *,
        singly: bool,
        upto: int | None = None,
    ) -> None:
        """Run a batch. `upto`: of its queries, those that are run before the worker dies."""
        if self._workers.get(number) is not worker:
            return  # it died meanwhile
        began = time.perf_counter()
        made, why = self.process.reach(lambda: _answers(worker.model, queries[:upto], singly=singly))
        took = time.perf_counter() - began if seconds is None else seconds
        job, answered = worker.job, 0
        for first, answers in made:
            answered = first + len(answers)
            self._listener.answered(number, job, first, answers, took)
        if why or upto is not None:
            self.lose(number, answered, why or "it was killed")
        else:
            worker.job = None

    def lose(self, number: int, answered: int, why: str) -> None:
        """End a worker, which has answered so many queries of its batch."""
        worker = self._workers.pop(number, None)
        if worker is not None:
            self._died.add(worker.place)
            self._workshop.died(self._name)
            self._listener.lost(number, worker.job, answered, why, failed=False)


def _answers(model: Any, queries: list[dict[str, Any]], *, singly: bool) -> tuple[list[tuple[int, list[Answer]]], str]:
    """Run a batch; return its answers, and why the worker has died of it, if it has."""
    made: list[tuple[int, list[Answer]]] = []
    try:
        for first, answers in answers_of(model, queries, Inputs, words_of, singly=singly) if queries else ():
            made.append((first, answers))
    except SystemExit as error:
        return made, f"its process ended (exit code {error.code or 0})"
    return made, ""
