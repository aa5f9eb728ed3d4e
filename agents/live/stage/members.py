"""The members of an ensemble: worker processes of each, whose answers are combined by the stage's core.

Each member is a crew of its own (`agents.live.stage.crew`), a lane of the stage (`agents.core.lanes`). The stage serves
once each has a worker; a member that loses its last one later is missing until it has another.
"""

from __future__ import annotations

import asyncio
import copy
from random import Random
from typing import TYPE_CHECKING, Any

from agents.core.actions import Failed, Ok
from agents.core.lanes import number_of, parts_of
from agents.core.pool import Pool
from agents.core.routes.ensemble import EVERYWHERE, Ensemble, Weights
from agents.learning.chosen import selection_of
from agents.live.clock import Clock
from agents.live.stage.cached import size_of
from agents.live.stage.crew import Crew
from agents.live.stage.lookups import WEIGHTS, key_of
from agents.live.stage.parts import Known, check_remembers, known_of_hello
from agents.workers.links import command_of
from lineage import reasons

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agents.core.actions import Result
    from agents.core.batching import Batch
    from agents.core.deaths import Place
    from agents.core.request import Request
    from agents.live.stage.batch_work import BatchWork, Prepared
    from agents.live.stage.config import StageProcessConfig
    from agents.live.stage.crew import Driver
    from agents.live.stage.lookups import Lookups
    from topology.spec import StageSpec


def route_of(spec: StageSpec, replica: int, lookups: Lookups | None) -> Ensemble:
    """The route of a stage with an ensemble, by its learner's table. Raises UsageError for a selection that is none."""
    ensemble = spec.ensemble
    assert ensemble is not None  # the caller has looked
    selection = selection_of(spec.name, ensemble.selection)
    initial = selection.initial(list(ensemble.members))

    def weights(request: Request, context: str) -> Weights:
        if lookups is None:
            return Weights(initial)
        row, stale = lookups.row(WEIGHTS, context)
        stale = stale or lookups.behind(request)
        return Weights(initial, None, stale) if row is None else Weights(row.value, list(row.version), stale)

    return Ensemble(
        selection,
        weights,
        Random(f"{spec.name}.{replica}"),  # noqa: S311 - no secret
        wait=float("inf") if ensemble.wait is None else ensemble.wait,
        missing=ensemble.missing,
        threshold=ensemble.threshold or 0.0,
        context_of=_context if ensemble.context == "key" else lambda _: EVERYWHERE,
        answer=ensemble.answer,
        learner="" if spec.learner is None else spec.learner.name,
    )


def _context(request: Request) -> str:
    return key_of(request.parts[0].payload)


class MemberWork:
    """Inputs as the stage makes them, and answers as the route takes them: one output, not routed or encoded."""

    def __init__(self, work: BatchWork, answer: str, *, caches: bool) -> None:
        """`caches`: whether answers are remembered; then the member sees no request's id or key."""
        self._work = work
        self._answer = answer
        self._caches = caches

    def prepare(self, batch: Batch) -> Prepared:
        prepared = self._work.prepare(batch)
        if self._caches:
            for inputs in prepared.inputs:
                inputs.request_id = inputs.key = ""
        return prepared

    def result(self, _prepared: Prepared, _place: int, answer: Mapping[str, Any], _seconds: float, /) -> Result:
        if "outputs" not in answer:
            return self._work.failed(answer)
        outputs = answer["outputs"]
        if not isinstance(outputs, dict) or self._answer not in outputs:
            had = ", ".join(map(str, outputs)) if isinstance(outputs, dict) else type(outputs).__name__
            return Failed(reasons.BAD_RESULT, f"the member's answer has no {self._answer!r}, but {had or 'nothing'}")
        value = outputs[self._answer]
        if not self._caches:
            return Ok({}, value=value)
        value = copy.deepcopy(value)  # it may be a view of the whole batch's bytes
        return Ok({}, value=value, size=size_of(value))


class Members:
    """The workers of all members of one front (`agents.live.stage.driver.Workers`)."""

    def __init__(self, config: StageProcessConfig) -> None:
        """Call in a running loop. Raises ModelError where a member names an interpreter that is not there."""
        ensemble = config.spec.ensemble
        assert ensemble is not None  # the caller has looked
        self._answer = ensemble.answer
        self._specs = {name: config.spec.member(name) for name in ensemble.members}
        self._crews = [self._crew(config, name) for name in ensemble.members]

    @staticmethod
    def _crew(config: StageProcessConfig, name: str) -> Crew:
        spec = config.spec.member(name)
        pool = Pool(spec.workers.of_front(0 if config.standby else config.replica))
        place = f"stage {spec.name!r}, member {name!r}"
        return Crew(place, pool, Clock(), command_of(spec, config.torch_threads), spec.workers.timeout)

    async def first(self) -> Known:
        """Start the workers; what the first member says of its inputs. Raises ModelError where one cannot be loaded."""
        hellos = await asyncio.gather(*(crew.first() for crew in self._crews))
        for (name, spec), hello in zip(self._specs.items(), hellos, strict=True):
            check_remembers(f"stage {spec.name!r}, member {name!r}", spec, known_of_hello(hello))
        return Known(signature=known_of_hello(hellos[0]).signature)

    def begin(self, driver: Driver, work: BatchWork) -> None:
        for lane, (crew, spec) in enumerate(zip(self._crews, self._specs.values(), strict=True)):
            crew.begin(CrewLane(lane, driver), MemberWork(work, self._answer, caches=spec.cache is not None))

    def submit(self, worker: int, batch: Batch) -> None:
        lane, number = parts_of(worker)
        self._crews[lane].submit(number, batch)

    def resize(self, _count: int) -> None:
        """Nothing: each member says how many it has."""

    @property
    def busy(self) -> set[Place]:
        return set().union(*(crew.busy for crew in self._crews))

    def close(self, timeout: float) -> bool:
        closed = [crew.close(timeout) for crew in self._crews]
        return all(closed)


class CrewLane:
    """What a crew tells of one member's workers (`agents.live.stage.crew.Driver`)."""

    def __init__(self, lane: int, driver: Driver) -> None:
        self._lane = lane
        self._driver = driver
        self.executed = driver.executed
        self.crashed = driver.crashed

    def attach(self, worker: int) -> None:
        self._driver.attach(number_of(self._lane, worker))

    def drain(self, worker: int) -> bool:
        return self._driver.drain(number_of(self._lane, worker))

    def lose(
        self, worker: int, results: Sequence[Result | None], blamed: list[int], why: str, *, counted: bool
    ) -> None:
        self._driver.lose(number_of(self._lane, worker), results, blamed, why, counted=counted)
