"""The variants of a stage: worker processes of each, of which one answers a query (INFaaS).

Each variant is a crew of its own (`spillway.agents.live.stage.crew`), and a lane of the stage from the beginning
(`spillway.agents.core.lanes`): without a worker it is asked nothing. The stage serves once each variant that the file
gives workers has one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spillway.agents.core.actions import Failed, Ok
from spillway.agents.core.routes.variants import Answered, Variants
from spillway.agents.live.stage.build import Known, known_of_hello
from spillway.agents.live.stage.members import CrewLane, LaneCrews
from spillway.lineage import reasons
from spillway.lineage.errors import UsageError, WireError
from spillway.lineage.flags import checked
from spillway.topology.variants.needs import needs_of
from spillway.topology.variants.variant import variants_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from spillway.agents.core.actions import Executed, Result
    from spillway.agents.core.batching import Batch
    from spillway.agents.core.request import Request
    from spillway.agents.live.stage.batch_work import BatchWork, Prepared
    from spillway.agents.live.stage.config import StageConfig
    from spillway.agents.live.stage.crew import Crew, Crews
    from spillway.agents.run.stage import Stage
    from spillway.lineage.message import Query
    from spillway.producers.models import Models
    from spillway.topology.spec import StageSpec
    from spillway.topology.variant_sections import VariantsSpec
    from spillway.topology.variants.needs import Needs

log = logging.getLogger(__name__)

_MOST_RUNS: Final = 10_000  # of which nobody has taken note


class Run(NamedTuple):
    """A batch that has run."""

    lane: int
    queries: int
    seconds: float  # at the worker


def route_of(spec: StageSpec) -> Variants:
    section = spec.variants
    assert section is not None  # the caller has looked

    def needs(request: Request) -> Needs:
        return needs_of(request.parts[0].payload.message.parameters, section.app)

    return Variants(
        variants_of(section), needs, on_miss=section.on_miss, budget=section.budget, versions=versions_of(section)
    )


def versions_of(section: VariantsSpec) -> dict[str, str]:
    return {name: each.version for name, each in section.of.items() if each.version is not None}


def reads_needs(route: Variants, app: str) -> Callable[[Query], float | None]:
    """What checks a query's needs as it is read, and gives the latency that it asks, in seconds.

    Raises WireError for needs that cannot be.
    """

    def read(query: Query) -> float | None:
        try:
            needs = needs_of(query.parameters, app)
            route.selection.choose(needs)
        except UsageError as error:
            raise WireError(reasons.BAD_INPUT, str(error)) from error
        return needs.latency

    return read


class VariantWork:
    """Inputs as the stage makes them, and answers as the route takes them: whole, not routed or encoded."""

    def __init__(self, work: BatchWork) -> None:
        self._work = work
        self.prepare = work.prepare

    def result(self, prepared: Prepared, place: int, answer: Mapping[str, Any], _seconds: float, /) -> Result:
        output = self._work.output(prepared, place, answer)
        if isinstance(output, Failed):
            return output
        said = getattr(output, "flags", None)
        try:
            flags = None if said is None else checked(said)
        except WireError as error:
            return Failed(reasons.BAD_RESULT, str(error))
        return Ok({}, value=Answered(output, flags, len(prepared.batch.requests)))


class VariantLane(CrewLane):
    """What a crew tells of one variant's workers; it notes the batches."""

    def __init__(self, lane: int, driver: Stage, runs: list[Run]) -> None:
        super().__init__(lane, driver)
        self._number, self._tell, self._runs = lane, driver.executed, runs
        self.executed = self._executed

    def _executed(self, batch: Batch, done: Executed) -> None:
        if len(self._runs) < _MOST_RUNS and not batch.offline:
            self._runs.append(Run(self._number, len(batch.requests), done.seconds))
        self._tell(batch, done)


class VariantCrews(LaneCrews):
    """The workers of all variants of the stage's front."""

    def __init__(self, config: StageConfig, crews: Crews, registry: Models | None = None) -> None:
        """Call in a running loop. `registry`: the table that the variants are of.

        Raises ModelError where a variant names an interpreter that is not there.
        """
        assert config.spec.variants is not None  # the caller has looked
        self._config, self._maker, self.registry = config, crews, registry
        self.section = config.spec.variants
        """The variants that serve."""
        self._crews = {name: self._crew(config.spec, name) for name in config.spec.lanes}
        self._counts = {name: crew.wanted for name, crew in self._crews.items()}
        self._gone: dict[int, Crew] = {}  # by lane, those that drain
        self._kept: frozenset[str] = frozenset()
        self._by_lane = dict(enumerate(self._crews.values()))
        self.names = list(self._crews)
        """By lane."""
        self._begun: tuple[Stage, BatchWork] | None = None
        self.runs: list[Run] = []
        """Batches that have run, since somebody took them."""

    def _crew(self, stage: StageSpec, name: str) -> Crew:
        spec = stage.variant(name)
        place = f"stage {spec.name!r}, variant {name!r}"
        return self._maker.make(place, spec, spec.workers.of_front(self._config.replica), name)

    async def first(self) -> Known:
        """Start the workers; what one says of its inputs. Raises ModelError where a variant cannot be loaded."""
        begun = [crew for crew in self._by_lane.values() if crew.wanted]
        hellos = await asyncio.gather(*(crew.first() for crew in begun))
        return Known(signature=known_of_hello(hellos[0]).signature)

    def begin(self, driver: Stage, work: BatchWork) -> None:
        self._begun = driver, work
        for lane, crew in self._by_lane.items():
            crew.begin(VariantLane(lane, driver, self.runs), VariantWork(work))

    def add(self, stage: StageSpec, name: str, lane: int) -> None:
        """Have the workers of one more variant, in the lane of this number, the next."""
        assert self._begun is not None  # the stage serves
        assert lane == len(self._by_lane)
        crew = self._crews[name] = self._by_lane[lane] = self._crew(stage, name)
        self._counts[name] = crew.wanted
        self.names.append(name)
        crew.begin(VariantLane(lane, self._begun[0], self.runs), VariantWork(self._begun[1]))
        crew.resize(crew.wanted)

    def keep(self, names: Iterable[str]) -> None:
        """Have as many workers of these as there are, whatever the table says."""
        self._kept = frozenset(names)

    def retire(self, names: Iterable[str]) -> None:
        """Have the workers of these drain."""
        for name in names:
            lane = len(self.names) - 1 - self.names[::-1].index(name)
            crew = self._gone[lane] = self._crews.pop(name)
            del self._counts[name]
            crew.resize(0)

    def forget(self) -> dict[int, Crew]:
        """The crews that have drained, by lane, which are to be closed; a batch of theirs is none any more."""
        over = {lane: crew for lane, crew in self._gone.items() if not crew.alive}
        for lane in over:
            del self._gone[lane]
        return over

    def follow(self, counts: Mapping[str, int]) -> None:
        """Have so many workers of each variant from now on, of others as many as the file says."""
        for name, crew in self._crews.items():
            count = counts.get(name, self._counts[name])
            if count != crew.wanted and name not in self._kept:
                log.info("%s: workers ordered of %s: %d", self._config.stage, name, count)
                crew.resize(count)

    def alive(self) -> dict[str, int]:
        """Each variant's workers, those that load and those that drain too."""
        return {name: crew.alive for name, crew in self._crews.items()}

    def deaths(self) -> dict[str, int]:
        return {name: crew.deaths for name, crew in self._crews.items()}
