"""InferLine's Estimator (section 4.4): a plan, profiles and a trace in, every query's latency out.

It is the simulator under policy `naive`: every query is answered, so a plan that is too small shows as latency and not
as drops. Where numba is installed, and a pipeline has no batching delay and no adaptive batch limit, the compiled loop
(`spillway.agents.sim.kernel`) runs in place of the engine, with the same latencies; `remark` says why where it does
not.
"""

from __future__ import annotations

import importlib.util
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.agents.sim.choices import Crossroads
from spillway.agents.sim.plan import plan_of
from spillway.agents.sim.simulation import simulate
from spillway.lineage.errors import UsageError
from spillway.lineage.metric_names import GATE
from spillway.topology import dag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from spillway.agents.sim.choices import Chances
    from spillway.agents.sim.kernel import Routes
    from spillway.agents.sim.plan import Plan
    from spillway.topology.capacity.planner import Sizing
    from spillway.topology.load import Pipeline

    Ways = tuple[list[dict[str, tuple[str, ...]]], NDArray[np.int32]]

POLICY = "naive"


class Estimator:
    """Estimates plans of one pipeline on one trace."""

    def __init__(
        self,
        pipeline: Pipeline,
        arrivals: ArrayLike,
        *,
        choices: Mapping[str, Chances] | None = None,
        chosen: Mapping[str, Sequence[tuple[str, ...] | None]] | None = None,
        hops: Mapping[str, float] | None = None,
        sizes: Mapping[str, Sizing] | None = None,
        seed: int = 0,
        compiled: bool | None = None,
    ) -> None:
        """Arrivals, choices and the seed are as `simulate` has them. Raises UsageError where they cannot be.

        `hops`: seconds by the stage that a message leads to, `GATE` for the last; 0 where it is not named.
        `sizes`: of the stages whose durations the pipeline does not know; any will do. `compiled`: whether to run the
        kernel; None: where that can be.
        """
        self.pipeline = pipeline
        self.due = np.ascontiguousarray(arrivals, np.float64)
        self._seed, self._choices, self._chosen = seed, choices, chosen
        names = [stage.name for stage in pipeline.spec.stages]
        self._hops = {place: (hops or {}).get(place, 0.0) for place in (*names, GATE)}
        self._plan = plan_of(
            pipeline,
            policy=POLICY,
            seed=seed,
            choices=choices or {},
            durations={name: size.duration for name, size in (sizes or {}).items()},
            batches={name: size.batch for name, size in (sizes or {}).items()},
        )
        why = _uncompiled(self._plan)
        if compiled and why is not None:
            raise UsageError(why)
        self.remark = why if compiled is None else None
        """Why estimates are slow; None where they are not."""
        self._compiled = why is None if compiled is None else compiled
        choosers = {stage.name: stage.choose for stage in self._plan.stages if stage.choose is not None}
        ways, way = _ways(Crossroads(choosers, len(self.due), seed, chosen).choices, len(self.due))
        counts = np.bincount(way, minlength=len(ways))
        graph = self._plan.graph
        reached = [dag.reach(graph.roots, {**graph.successors, **each}) for each in ways]
        self.shares = {
            name: sum(int(count) for count, there in zip(counts, reached, strict=True) if name in there) / len(self.due)
            for name in names
        }
        """s_m: by stage, the share of the queries that visit it."""
        if self._compiled:
            self._routes = self._routed(ways, way)

    def __call__(
        self, sizes: Mapping[str, Sizing], slo: float = float("inf"), most_late: int | None = None
    ) -> NDArray[np.float64] | None:
        """Every query's latency in seconds; a stage that `sizes` does not name is as the pipeline says.

        None where more than `most_late` take longer than `slo`, as soon as that is certain.
        """
        most = len(self.due) if most_late is None else most_late
        if self._compiled:
            from spillway.agents.sim import kernel  # noqa: PLC0415 - needs numba

            finished, late = kernel.run(self.due, self._routes, self._stations(sizes), slo, most)
            return None if late > most else finished - self.due
        result = simulate(
            self.pipeline,
            self.due,
            workers=[
                sizes[stage.name].workers if stage.name in sizes else stage.worker_count
                for stage in self.pipeline.spec.stages
            ],
            policy=POLICY,
            seed=self._seed,
            choices=self._choices,
            chosen=self._chosen,
            durations={name: size.duration for name, size in sizes.items()},
            batches={name: size.batch for name, size in sizes.items()},
            hops={place: np.full(len(self.due), seconds) for place, seconds in self._hops.items()}
            if any(self._hops.values())
            else None,
        )
        latency = result.finished - result.due
        return None if int((latency > slo).sum()) > most else latency

    def _routed(self, ways: list[dict[str, tuple[str, ...]]], way: NDArray[np.int32]) -> Routes:
        from spillway.agents.sim import kernel  # noqa: PLC0415 - needs numba

        plan, graph = self._plan, self._plan.graph
        numbers = {stage.name: number for number, stage in enumerate(plan.stages)}
        stages = len(numbers)
        rules = np.zeros(stages + 1, np.int32)
        for name, rule in plan.joins.items():
            rules[numbers[name]] = kernel.ALL if rule.mode == "all" else kernel.ANY
        if len(graph.sinks) > 1 or any(stage.choose for stage in plan.stages):
            rules[stages] = kernel.ALL if plan.sinks == "all" else kernel.ANY
        targets = np.full((len(ways), stages, stages + 1), -1, np.int32)
        expected = np.zeros((len(ways), stages + 1), np.int32)
        for index, path in enumerate(ways):
            for name, number in numbers.items():
                sends = path.get(name, graph.successors[name])
                targets[index, number, : len(sends)] = [numbers[each] for each in sends]
                expected[index, number] = len(graph.expected(name, path))
            expected[index, stages] = len(graph.terminals(path))
        partition = np.zeros(len(self.due), np.int32)
        if any(stage.queues > 1 for stage in plan.stages):
            random = Random(plan.seed)  # noqa: S311 - as the engine draws them
            partition[:] = [random.randrange(plan.partitions) for _ in range(len(self.due))]
        roots = np.array([numbers[name] for name in graph.roots], np.int32)
        return kernel.Routes(way, targets, expected, rules, roots, partition)

    def _stations(self, sizes: Mapping[str, Sizing]) -> Any:
        from spillway.agents.sim import kernel  # noqa: PLC0415 - needs numba

        stages = self._plan.stages
        limits = [sizes[stage.name].batch if stage.name in sizes else stage.batch for stage in stages]
        durations = np.zeros((len(stages), max(limits) + 1))
        owner = np.zeros((len(stages), max(1, self._plan.partitions)), np.int32)
        station_of: list[int] = []
        workers: list[int] = []
        for number, stage in enumerate(stages):
            size = sizes.get(stage.name)
            duration = stage.duration if size is None else size.duration
            durations[number, 1 : limits[number] + 1] = [duration(n) for n in range(1, limits[number] + 1)]
            owner[number] = [len(workers) + queue for queue in stage.owners]
            workers += [stage.instances] * stage.queues if size is None else [size.workers]
            station_of += [number] * stage.queues
        hops = [self._hops[place] for place in (*(stage.name for stage in stages), GATE)]
        return kernel.Stations(
            owner,
            np.array(station_of, np.int32),
            np.array(workers, np.int32),
            np.array(limits, np.int32),
            durations,
            np.array(hops),
        )


def _uncompiled(plan: Plan) -> str | None:
    """Why the kernel cannot run a plan; None where it can."""
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed, so estimates take some thirty times as long: pip install 'spillway[capacity]'"
    for stage in plan.stages:
        if stage.delay:
            return f"stage {stage.name!r} has a batching delay, which only the slow simulator knows"
        if stage.limits is not None:
            return f"stage {stage.name!r} has a batch limit that adapts, which only the slow simulator knows"
    return None


def _ways(choices: Mapping[str, Sequence[tuple[str, ...]]], count: int) -> Ways:
    """The different combinations of choices, and which of them is each request's."""
    if not choices:
        return [{}], np.zeros(count, np.int32)
    numbers: dict[tuple[tuple[str, ...], ...], int] = {}
    way = [numbers.setdefault(each, len(numbers)) for each in zip(*choices.values(), strict=True)]
    return [dict(zip(choices, each, strict=True)) for each in numbers], np.array(way, np.int32)
