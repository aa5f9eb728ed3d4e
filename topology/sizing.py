"""A checked pipeline with what its profiles say of it: every stage's durations, and the batches planned from them.

Batches are planned where the durations of all stages are known: emulated, or measured and read
from a profile file. Otherwise a batch limit that is not given finds itself while the stage serves, within `max`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spillway.lineage.errors import SpecError
from spillway.topology.names import meant
from spillway.topology.problems import Problem
from spillway.topology.profiles import read_profiles
from spillway.topology.quantities import show_duration
from spillway.topology.routing import Graph
from spillway.topology.sections import ADAPTIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from spillway.topology.profiles import StageProfile
    from spillway.topology.spec import PipelineSpec, StageSpec

    Durations = Mapping[str, Callable[[int], float]]


# Planned batch sizes: how large the batches of each stage may grow so that a query still meets the SLO.
#
# The rule, as Nexus and InferLine plan (PARD, section 5.1: "feasible batch sizes based on offline profiling"):
#
# 1. The SLO is split over each path from the ingress to an end in proportion to the stages' durations d(1), less what
#    is settled already: twice d(batch) of a stage whose batch the user gives, and every `batching.delay`.
# 2. A stage on several paths gets the least of its shares. So on no path do the shares add up to more than the SLO.
# 3. Its planned batch is the largest b <= `batching.max` with 2 d(b) <= its share: a query that just misses a batch
#    waits for all of it and is then executed in the next. Where not even a batch of 1 fits so, the batch is 1.
#
# All durations are seconds. A batch planned for a longer SLO is never smaller. A pipeline whose stages take longer
# than the SLO with batches of 1 and no waiting cannot answer in time, and is refused, unless a choice or a join of the
# first makes a shorter way: then only a query that takes the long one is late.

WAITS: Final = 2  # durations of a batch that a query may spend in a stage: one waiting, one executing
_CLOSE: Final = 1 + 1e-9  # shares are sums of floats
_LEAST_OBJECTIVE: Final = 1e-3  # seconds, where waiting and given batches leave nothing of the SLO


class TooSlowError(SpecError):
    """No query can meet the SLO, however the batches are planned."""


def plan_batches(spec: PipelineSpec, durations: Durations) -> dict[str, int]:
    """The planned batch of every stage, by name; a batch that the user gives stays.

    `durations`: of each stage, the seconds of a batch of n. Raises TooSlowError where batches of 1 are too slow.
    """
    _check(spec, Graph(spec), {stage.name: durations[stage.name](1) for stage in spec.stages})
    shares = _shares(spec, durations)
    return {
        stage.name: _largest(stage, durations[stage.name], shares[stage.name] * _CLOSE)
        if stage.name in shares
        else stage.batching.most
        for stage in spec.stages
    }


def objectives(spec: PipelineSpec, durations: Durations) -> dict[str, float]:
    """How long a batch of each stage may run, in seconds, where its batch limit adapts and names no objective.

    It is half the stage's share of the SLO: one batch to wait for, and one to run in. Where the duration of any stage
    is unknown, the stages of the longest path have even shares.
    """
    known = all(stage.name in durations for stage in spec.stages)
    shares = _shares(spec, durations if known else {stage.name: _alike for stage in spec.stages})
    adaptive = [stage.name for stage in spec.stages if stage.batching.limit in ADAPTIVE]
    return {name: shares[name] / WAITS for name in adaptive if name in shares}


def _alike(_count: int) -> float:
    return 1.0


def _shares(spec: PipelineSpec, durations: Durations) -> dict[str, float]:
    """Seconds of the SLO for each stage whose batch or objective is not given."""
    graph = Graph(spec)
    free: dict[str, float] = {}
    settled = {stage.name: stage.batching.delay for stage in spec.stages}
    for stage in spec.stages:
        batching, duration = stage.batching, durations[stage.name]
        if batching.limit in ADAPTIVE and batching.objective is not None:
            settled[stage.name] += WAITS * batching.objective
        elif batching.size is None and batching.limit != "fixed":
            free[stage.name] = duration(1)
        elif duration is not _alike:
            settled[stage.name] += WAITS * duration(batching.most)
    return {name: single * _stretch(name, graph, free, settled, spec.slo) for name, single in free.items()}


def least_time(spec: PipelineSpec, graph: Graph, durations: Mapping[str, float]) -> tuple[float, tuple[str, ...]]:
    """Seconds of the slowest way that each query must take, and that way; 0 where a choice or `any` leaves it open.

    A stage that is not in `durations` is taken to cost nothing.
    """
    if any(graph.is_chooser(name) for name in graph.order) or spec.sinks == "any":
        return 0.0, ()
    ends: dict[str, tuple[float, tuple[str, ...]]] = {}
    for name in graph.order:
        join = spec.stage(name).join
        before = [ends[each] for each in graph.predecessors[name]] or [(0.0, ())]
        seconds, way = min(before) if join is not None and join.mode == "any" else max(before)
        own = durations.get(name, 0.0)
        ends[name] = (seconds + own, (*way, name) if own else way)
    return max(ends[name] for name in graph.sinks)


HOP_SECONDS: Final = 0.004  # of a record through a topic, at low load: the README's figures, p50 on two cores


def topics_passed(spec: PipelineSpec, graph: Graph) -> int:
    """How many topics a query passes at least, one after the other: ingress, stages, outcomes and egress."""
    open_ended = any(graph.is_chooser(name) for name in graph.order) or spec.sinks == "any"
    depth: dict[str, int] = {}
    for name in graph.order:
        join = spec.stage(name).join
        first = open_ended or (join is not None and join.mode == "any")
        depth[name] = 1 + (min if first else max)([depth[each] for each in graph.predecessors[name]] or [0])
    return (min if open_ended else max)(depth[name] for name in graph.sinks) + 2


def _check(spec: PipelineSpec, graph: Graph, single: Mapping[str, float]) -> None:
    least, way = least_time(spec, graph, single)
    if least > spec.slo:
        stages = f"the stages {' -> '.join(way)} take" if len(way) > 1 else f"stage {way[0]} takes"
        raise TooSlowError(
            f"pipeline {spec.name!r}: {stages} {show_duration(round(least, 6))} for a batch of one, so no query can "
            f"meet the SLO of {show_duration(spec.slo)}; give it a longer SLO, or faster models"
        )


def _stretch(stage: str, graph: Graph, free: Mapping[str, float], settled: Mapping[str, float], slo: float) -> float:
    """How many times its d(1) each free stage may take on the path through `stage` that leaves least.

    On a path p it is (SLO - settled_p) / sum of d(1). The least over all paths is found without going through them
    (there may be exponentially many): try a value, and lower it to that of the path which is longest under it.
    """
    stretch = float("inf")
    way = _longest(stage, graph, free)  # a first guess, from above
    while True:
        total = sum(free.get(name, 0.0) for name in way)
        found = max(0.0, slo - sum(settled[name] for name in way)) / total if total > 0 else stretch
        if not found < stretch:
            return stretch
        stretch = found
        way = _longest(stage, graph, {name: settled[name] + stretch * free.get(name, 0.0) for name in graph.order})


def _longest(through: str, graph: Graph, weights: Mapping[str, float]) -> tuple[str, ...]:
    before: dict[str, tuple[float, tuple[str, ...]]] = {}
    for name in graph.order:
        seconds, way = max((before[each] for each in graph.predecessors[name]), default=(0.0, ()))
        before[name] = (seconds + weights.get(name, 0.0), (*way, name))
        if name == through:
            break
    after: dict[str, tuple[float, tuple[str, ...]]] = {}
    for name in reversed(graph.order):
        seconds, way = max((after[each] for each in graph.successors[name]), default=(0.0, ()))
        if name == through:
            return (*before[name][1], *way)
        after[name] = (seconds + weights.get(name, 0.0), (name, *way))
    raise AssertionError(f"{through} is not a stage of the graph")


def _largest(stage: StageSpec, duration: Callable[[int], float], share: float) -> int:
    """The largest batch that fits, and below which all fit; a measured profile need not grow with the batch."""
    batch = 1
    while batch < stage.batching.max and WAITS * duration(batch + 1) <= share:
        batch += 1
    return batch


def profile_file(spec: PipelineSpec, stage: StageSpec) -> str | None:
    """The profile file that a stage refers to, as written; None for an emulated stage."""
    return None if stage.model is None else stage.profile or spec.profile


def profiles_of(spec: PipelineSpec, folder: Path, problems: list[Problem]) -> dict[str, StageProfile]:
    """The profile of every stage that refers to a file; what is wrong with one adds to `problems`."""
    files: dict[str, dict[str, StageProfile] | str] = {}
    found = {}
    for number, stage in enumerate(spec.stages):
        file = profile_file(spec, stage)
        if file is None:
            continue
        if file not in files:
            try:
                files[file] = read_profiles(folder / file)
            except SpecError as error:
                files[file] = f"{error}; make one with 'spillway plan profile'"
        place = ("stages", number, "profile") if stage.profile is not None else ("profile",)
        known = files[file]
        if stage.unmeasured and stage.name not in known:
            continue
        wrong = known if isinstance(known, str) else _unfit(stage, file, known)
        if wrong is not None:
            problems.append(Problem(place, wrong))
        elif not isinstance(known, str):
            found[stage.name] = known[stage.name]
    return found


def _unfit(stage: StageSpec, file: str, known: Mapping[str, StageProfile]) -> str | None:
    """Why a profile file does not serve this stage; None where it does."""
    renew = f"run 'spillway plan profile' with --stage {stage.name}"
    if stage.name not in known:
        return f"{file} has no profile of stage {stage.name!r}; {meant(stage.name, known)}; {renew} to add it"
    sizes = known[stage.name].batches
    if min(sizes) != 1:
        return f"the profile of {stage.name!r} in {file} begins with a batch of {min(sizes)}; {renew}"
    most = stage.batching.most
    if max(sizes) < most:
        field = "batching.size" if stage.batching.size is not None else "batching.max"
        return (
            f"the profile of {stage.name!r} in {file} ends with a batch of {max(sizes)}, and {field} is {most}; {renew}"
        )
    return None


def durations_of(spec: PipelineSpec, profiles: Mapping[str, StageProfile]) -> dict[str, Callable[[int], float]]:
    """Seconds of a batch of n, for every stage of which they are known."""
    known = {name: profile.duration() for name, profile in profiles.items()}
    return known | {stage.name: stage.emulated.duration for stage in spec.stages if stage.emulated is not None}


def planned(spec: PipelineSpec, durations: Durations, problems: list[Problem]) -> PipelineSpec:
    """The pipeline with a batch limit for every stage, and what it rests on: a planned size, or an objective.

    A pipeline that is too slow, and a size to plan of unknown durations, are problems.
    """
    known = all(stage.name in durations for stage in spec.stages)
    for number, stage in enumerate(spec.stages):
        if not known and stage.batching.limit == "planned" and stage.batching.size is None:
            text = (
                "planning a batch size needs the durations of all stages, and some are unknown; measure them with "
                "'spillway plan profile', give 'size', or write 'limit: aimd'"
            )
            problems.append(Problem(("stages", number, "batching", "limit"), text))
    named = spec.model_copy(update={"stages": tuple(_named(stage, known=known) for stage in spec.stages)})
    batches: dict[str, int] = {}
    if known:
        try:
            batches = plan_batches(named, durations)
        except TooSlowError as error:
            problems.append(Problem(("slo",), str(error)))
            return spec
    times = objectives(named, durations)
    stages = []
    for stage in named.stages:
        changes: dict[str, float] = {}
        if stage.batching.limit == "planned" and stage.name in batches:
            changes["size"] = batches[stage.name]
        elif stage.name in times:
            changes["objective"] = max(times[stage.name], _LEAST_OBJECTIVE)
        stages.append(stage.with_batching(**changes) if changes else stage)
    return named.model_copy(update={"stages": tuple(stages)})


def _named(stage: StageSpec, *, known: bool) -> StageSpec:
    if stage.batching.limit is not None:
        return stage
    return stage.with_batching(limit="planned" if known or stage.batching.size is not None else "aimd")
