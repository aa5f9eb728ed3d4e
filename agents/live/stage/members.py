"""The members of an ensemble: worker processes of each, whose answers are combined by the stage's core.

Each member is a crew of its own (`spillway.agents.live.stage.crew`), a lane of the stage
(`spillway.agents.core.lanes`). The stage serves once each has a worker; a member that loses its last one later is
missing until it has another. What may change while it serves is in a record of the table of sizes
(`spillway.topology.ensembles`).
"""

from __future__ import annotations

import asyncio
import copy
import logging
from random import Random
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.core.actions import Failed, Ok
from spillway.agents.core.lanes import number_of, parts_of
from spillway.agents.core.routes.ensemble import EVERYWHERE, Ensemble, Rules, Weights
from spillway.agents.learning.chosen import selection_of
from spillway.agents.live.stage.build import Known, build_lane, check_remembers, known_of_hello
from spillway.agents.live.stage.cached import size_of
from spillway.agents.live.stage.lookups import WEIGHTS, key_of
from spillway.agents.models.contract import copied
from spillway.agents.models.model_errors import RaisedLog, words_of
from spillway.agents.run.emission import about
from spillway.lineage import reasons
from spillway.lineage.errors import ModelError, SpillwayError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.agents.core.actions import Result
    from spillway.agents.core.batching import Batch
    from spillway.agents.core.crash_suspects import Place
    from spillway.agents.core.lane import Lane
    from spillway.agents.core.lanes import Lanes
    from spillway.agents.core.request import Request
    from spillway.agents.live.stage.batch_work import BatchWork, Prepared
    from spillway.agents.live.stage.config import StageConfig
    from spillway.agents.live.stage.crew import Crew, Crews, Driver
    from spillway.agents.live.stage.lookups import Lookups
    from spillway.agents.run.stage import Stage
    from spillway.topology.ensembles import Served
    from spillway.topology.spec import StageSpec

log = logging.getLogger(__name__)

_LOOK: Final = 0.05  # seconds between two looks at what a member has to finish
_SHORTEST: Final = 1.0  # seconds until a member that did not load is tried again
_LONGEST: Final = 30.0


def route_of(spec: StageSpec, replica: int, lookups: Lookups | None) -> Ensemble:
    """The route of a stage with an ensemble, by its learner's table. Raises UsageError for a selection that is none."""
    ensemble = spec.ensemble
    assert ensemble is not None  # the caller has looked

    def weights(request: Request, context: str) -> Weights:
        if lookups is None:
            return Weights({})
        row, stale = lookups.row(WEIGHTS, context)
        stale = stale or lookups.behind(request)
        return Weights({}, None, stale) if row is None else Weights(copied(row.value), list(row.version), stale)

    raised = RaisedLog(spec.name)
    return Ensemble(
        rules_of(spec, 0),
        weights,
        Random(f"{spec.name}.{replica}"),  # noqa: S311 - no secret
        context_of=_context if ensemble.context == "key" else lambda _: EVERYWHERE,
        answer=ensemble.answer,
        learner="" if spec.learner is None else spec.learner.name,
        raised=lambda error, doing, request: raised.words(error, doing, about(request)),
    )


def rules_of(spec: StageSpec, epoch: int) -> Rules:
    """What a stage's section says; `epoch`: of its record. Raises UsageError for a selection that is none."""
    ensemble = spec.ensemble
    assert ensemble is not None  # the caller has looked
    members = tuple(ensemble.members)
    return Rules(
        selection_of(spec.name, ensemble.selection),
        wait=float("inf") if ensemble.wait is None else ensemble.wait,
        missing=ensemble.missing,
        threshold=ensemble.threshold or 0.0,
        members=members,
        told={"epoch": epoch, "selection": ensemble.selection, "members": list(members)},
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

    def result(self, prepared: Prepared, place: int, answer: Mapping[str, Any], _seconds: float, /) -> Result:
        if "outputs" not in answer:
            return self._work.failed(answer, prepared.batch.requests[prepared.places[place]])
        outputs = answer["outputs"]
        if not isinstance(outputs, dict) or self._answer not in outputs:
            had = ", ".join(map(str, outputs)) if isinstance(outputs, dict) else type(outputs).__name__
            return Failed(reasons.BAD_RESULT, f"the member's answer has no {self._answer!r}, but {had or 'nothing'}")
        value = outputs[self._answer]
        if not self._caches:
            return Ok({}, value=value)
        try:
            value = copy.deepcopy(value)  # it may be a view of the whole batch's bytes
            return Ok({}, value=value, size=size_of(value))
        except BaseException as error:  # noqa: BLE001 - nested too deeply, or an author's own that raises
            return Failed(reasons.BAD_RESULT, f"the member's {self._answer!r} cannot be kept: {words_of(error)}")


class LaneCrews:
    """The workers of all lanes of one front (`spillway.agents.run.stage_context.Workers`)."""

    _crews: dict[str, Crew]
    _by_lane: dict[int, Crew]  # those that finish, too

    def submit(self, worker: int, batch: Batch) -> None:
        lane, number = parts_of(worker)
        self._by_lane[lane].submit(number, batch)

    def resize(self, _count: int) -> None:
        """Nothing: each lane has a count of its own."""

    def wanted(self) -> dict[str, int]:
        return {name: crew.wanted for name, crew in self._crews.items()}

    @property
    def busy(self) -> set[Place]:
        return set().union(*(crew.busy for crew in self._by_lane.values()))

    def close(self, timeout: float) -> bool:
        closed = [crew.close(timeout) for crew in {*self._crews.values(), *self._by_lane.values()}]
        return all(closed)


class Members(LaneCrews):
    """The workers of all members of one front.

    Members come and go while it serves, as the table of sizes says (`follow`). A new one is a lane once a worker of its
    has loaded; until then, and where it does not load, the others go on without it. One that is gone from the table
    finishes what it has.
    """

    def __init__(self, config: StageConfig, crews: Crews) -> None:
        """Call in a running loop. Raises ModelError where a member names an interpreter that is not there."""
        ensemble = config.spec.ensemble
        assert ensemble is not None  # the caller has looked
        self._answer = ensemble.answer
        self._specs = {name: config.spec.member(name) for name in ensemble.members}
        self._config, self._maker = config, crews
        self._crews = {name: self._crew(name) for name in ensemble.members}
        self._numbers = {name: number for number, name in enumerate(ensemble.members)}
        self._by_lane = dict(enumerate(self._crews.values()))
        self._joining: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._closed = False
        self._epoch: int | None = None
        self.troubles: dict[str, str] = {}
        """Why members do not serve, by name."""
        self.record: Served | None = None
        """What it goes by, where the table of sizes has that."""
        self._lanes: Lanes
        self._route: Ensemble
        self._driver: Stage
        self._work: BatchWork

    async def first(self, *, all_load: bool = True) -> Known:
        """Start the workers; what the first member says of its inputs.

        Raises ModelError where one cannot be loaded; unless `all_load`, where none can.
        """
        names = list(self._crews)
        hellos = await asyncio.gather(*(self._loaded(name) for name in names), return_exceptions=True)
        failed = {name: each for name, each in zip(names, hellos, strict=True) if isinstance(each, BaseException)}
        for name, error in failed.items():
            if all_load or len(failed) == len(names) or not isinstance(error, ModelError):
                raise error
            self._say(name, error)
        said = next(each for each in hellos if not isinstance(each, BaseException))
        return Known(signature=known_of_hello(said).signature)

    def _crew(self, name: str) -> Crew:
        spec = self._config.spec.member(name)
        return self._maker.make(f"stage {spec.name!r}, member {name!r}", spec, _count(self._config, name), name)

    async def _loaded(self, name: str) -> dict[str, Any]:
        hello = await self._crews[name].first()
        place = f"stage {self._config.stage!r}, member {name!r}"
        check_remembers(place, self._specs[name], known_of_hello(hello))
        return hello

    def serve(self, lanes: Lanes, route: Ensemble) -> None:
        """Name what its members are lanes of; before `begin`."""
        self._lanes, self._route = lanes, route

    def begin(self, driver: Stage, work: BatchWork) -> None:
        self._driver, self._work = driver, work
        for name in self._crews:
            if name in self.troubles:
                self._join(name)
            else:
                self._serve(name)

    def _serve(self, name: str) -> None:
        number, caches = self._numbers[name], self._specs[name].cache is not None
        self._by_lane[number] = self._crews[name]
        self._crews[name].begin(CrewLane(number, self._driver), MemberWork(self._work, self._answer, caches=caches))

    def close(self, timeout: float) -> bool:
        self._closed = True
        return super().close(timeout)

    # Members come and go -------------------------------------------------------------------------------------------

    def follow(self, config: StageConfig, record: Served | None) -> None:
        """Have the members, counts and rules of the config, which `record` says. Call on the loop."""
        self._config = config
        ensemble, stage = config.spec.ensemble, config.stage
        assert ensemble is not None  # a section stays one
        self.record = record if record is not None and record.digest == config.pipeline.frame else None
        epoch = 0 if self.record is None else self.record.epoch
        if epoch != self._epoch:
            try:
                rules = rules_of(config.spec, epoch)
            except SpillwayError as error:
                log.error("%s: its members and its selection stay: %s", stage, error)  # noqa: TRY400 - the user's mistake
                return
            if self._epoch is not None and self.record is not None:
                log.info("%s: its ensemble is %s", stage, self.record.text)
            self._epoch = epoch
            self._route.change(rules)
        self._retire_gone()
        self.troubles = {name: why for name, why in self.troubles.items() if name in ensemble.members}
        for name in ensemble.members:
            if name not in self._crews:
                self._add(name)
            elif (count := _count(config, name)) != self._crews[name].wanted:
                log.info("%s: %d workers of %s are wanted", stage, count, name)
                self._crews[name].resize(count)

    def _retire_gone(self) -> None:
        """Let go the members that are not in the section, once one that is in it serves."""
        ensemble = self._config.spec.ensemble
        assert ensemble is not None  # a section stays one
        if self._numbers.keys() & ensemble.members.keys() - self.troubles.keys():
            for name in self._crews.keys() - ensemble.members.keys():
                self._retire(name)

    def _add(self, name: str) -> None:
        self._specs[name] = self._config.spec.member(name)
        try:
            self._crews[name] = self._crew(name)
        except ModelError as error:  # no such interpreter; it is looked for again when the table says something next
            self._say(name, error)
        else:
            self._join(name)

    def _join(self, name: str) -> None:
        """Load a member beside the others, and have it asked from then on; again and again, if it fails."""
        joining = asyncio.get_running_loop().create_task(self._load(name))
        self._joining[name] = joining
        joining.add_done_callback(self._ended)

    async def _load(self, name: str) -> None:
        pause, failed = _SHORTEST, name in self.troubles
        while True:
            try:
                if failed:
                    await asyncio.to_thread(self._crews[name].close, 1.0)
                    await asyncio.sleep(pause)
                    pause = min(_LONGEST, 2 * pause)
                    self._crews[name] = self._crew(name)
                await self._loaded(name)
            except ModelError as error:
                self._say(name, error)
                failed = True
            else:
                break
        self.troubles.pop(name, None)
        if name not in self._numbers:
            self._numbers[name] = self._lanes.add(name, *build_lane(self._config, self._specs[name]))
        log.info("%s: member %s serves from now on", self._config.stage, name)
        self._serve(name)
        self._retire_gone()

    def _retire(self, name: str) -> None:
        log.info("%s: member %s is asked nothing more", self._config.stage, name)
        crew, number = self._crews.pop(name), self._numbers.pop(name, None)
        if (joining := self._joining.pop(name, None)) is not None:
            joining.cancel()
        lane = None if number is None else self._lanes.retire(self._driver.now(), name, finishes=True)
        leaving = asyncio.get_running_loop().create_task(self._leave(name, crew, lane))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        leaving.add_done_callback(self._ended)

    async def _leave(self, name: str, crew: Crew, lane: Lane | None) -> None:
        """Have a member finish what it has, then let its workers and its lane go."""
        while lane is not None and not lane.finished:  # noqa: ASYNC110 - for once, and not for long
            await asyncio.sleep(_LOOK)
        crew.resize(0)
        while crew.alive:  # noqa: ASYNC110 - the same
            await asyncio.sleep(_LOOK)
        await asyncio.to_thread(crew.close, 1.0)
        if lane is not None:
            self._lanes.forget(lane.number)
            self._by_lane.pop(lane.number, None)
        log.info("%s: member %s is gone", self._config.stage, name)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self._closed:
            self._driver.crashed(error)

    def _say(self, name: str, error: BaseException) -> None:
        self.troubles[name] = str(error)
        log.error("%s: member %s does not serve: %s", self._config.stage, name, error)


def _count(config: StageConfig, name: str) -> int:
    return config.spec.member(name).workers.of_front(0 if config.standby else config.replica)


class CrewLane:
    """What a crew tells of one member's workers (`spillway.agents.live.stage.crew.Driver`)."""

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
