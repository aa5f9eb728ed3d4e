"""A checked pipeline with what its profiles say of it: every stage's durations, and the batches planned from them.

Batches are planned where the durations of all stages are known: emulated, or measured and read
from a profile file. Otherwise a batch that is not given is `max_batch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lineage.errors import SpecError
from topology.names import meant
from topology.problems import Problem
from topology.profiles import read_profiles
from topology.quantities import show_duration
from topology.routing import Graph

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from topology.profiles import StageProfile
    from topology.spec import PipelineSpec, StageSpec

    Durations = Mapping[str, Callable[[int], float]]


# Planned batch sizes: how large the batches of each stage may grow so that a query still meets the SLO.
#
# The rule, as Nexus and InferLine plan (PARD, section 5.1: "feasible batch sizes based on offline profiling"):
#
# 1. The SLO is split over each path from the ingress to an end in proportion to the stages' durations d(1), less what
#    is settled already: twice d(batch) of a stage whose batch the user gives, and every `batch_delay`.
# 2. A stage on several paths gets the least of its shares. So on no path do the shares add up to more than the SLO.
# 3. Its planned batch is the largest b <= `max_batch` with 2 d(b) <= its share: a query that just misses a batch waits
#    for all of it and is then executed in the next. Where not even a batch of 1 fits so, the batch is 1.
#
# All durations are seconds. A batch planned for a longer SLO is never smaller. A pipeline whose stages take longer
# than the SLO with batches of 1 and no waiting cannot answer in time, and is refused, unless a choice or a join of the
# first makes a shorter way: then only a query that takes the long one is late.

WAITS: Final = 2  # durations of a batch that a query may spend in a stage: one waiting, one executing
_CLOSE: Final = 1 + 1e-9  # shares are sums of floats


class TooSlowError(SpecError):
    """No query can meet the SLO, however the batches are planned."""


def plan_batches(spec: PipelineSpec, durations: Durations) -> dict[str, int]:
    """The planned batch of every stage, by name; a batch that the user gives stays.

    `durations`: of each stage, the seconds of a batch of n. Raises TooSlowError where batches of 1 are too slow.
    """
    graph = Graph(spec)
    single = {stage.name: durations[stage.name](1) for stage in spec.stages}
    _check(spec, graph, single)
    free = {stage.name: single[stage.name] for stage in spec.stages if stage.batch is None}
    settled = {stage.name: stage.batch_delay for stage in spec.stages}
    batches = {}
    for stage in spec.stages:
        if stage.batch is not None:
            batches[stage.name] = stage.batch
            settled[stage.name] += WAITS * durations[stage.name](stage.batch)
    for stage in spec.stages:
        if stage.name in free:
            share = free[stage.name] * _stretch(stage.name, graph, free, settled, spec.slo)
            batches[stage.name] = _largest(stage, durations[stage.name], share * _CLOSE)
    return {stage.name: batches[stage.name] for stage in spec.stages}


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
    raise AssertionError(f"{through} is no stage of the graph")


def _largest(stage: StageSpec, duration: Callable[[int], float], share: float) -> int:
    """The largest batch that fits, and below which all fit; a measured profile need not grow with the batch."""
    batch = 1
    while batch < stage.max_batch and WAITS * duration(batch + 1) <= share:
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
                files[file] = f"{error}; 'spillway profile' makes one"
        place = ("stages", number, "profile") if stage.profile is not None else ("profile",)
        known = files[file]
        wrong = known if isinstance(known, str) else _unfit(stage, file, known)
        if wrong is not None:
            problems.append(Problem(place, wrong))
        elif not isinstance(known, str):
            found[stage.name] = known[stage.name]
    return found


def _unfit(stage: StageSpec, file: str, known: Mapping[str, StageProfile]) -> str | None:
    """Why a profile file does not serve this stage; None where it does."""
    renew = f"run 'spillway profile' with --stage {stage.name}"
    if stage.name not in known:
        return f"{file} has no profile of stage {stage.name!r}; {meant(stage.name, known)}; {renew} to add it"
    sizes = known[stage.name].batches
    if min(sizes) != 1:
        return f"the profile of {stage.name!r} in {file} begins with a batch of {min(sizes)}; {renew}"
    most = stage.batch_size
    if max(sizes) < most:
        field = "batch" if stage.batch is not None else "max_batch"
        return (
            f"the profile of {stage.name!r} in {file} ends with a batch of {max(sizes)}, and {field} is {most}; {renew}"
        )
    return None


def durations_of(spec: PipelineSpec, profiles: Mapping[str, StageProfile]) -> dict[str, Callable[[int], float]]:
    """Seconds of a batch of n, for every stage of which they are known."""
    known = {name: profile.duration() for name, profile in profiles.items()}
    return known | {stage.name: stage.emulated.duration for stage in spec.stages if stage.emulated is not None}


def planned(spec: PipelineSpec, durations: Durations, problems: list[Problem]) -> PipelineSpec:
    """The pipeline with a batch for every stage, as far as durations are known; that it is too slow is a problem."""
    if any(stage.name not in durations for stage in spec.stages):
        return spec
    try:
        batches = plan_batches(spec, durations)
    except TooSlowError as error:
        problems.append(Problem(("slo",), str(error)))
        return spec
    stages = tuple(stage.model_copy(update={"batch": batches[stage.name]}) for stage in spec.stages)
    return spec.model_copy(update={"stages": stages})
