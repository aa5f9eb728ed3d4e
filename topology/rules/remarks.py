"""What is allowed in a pipeline, but is likely not what its author wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.quantities import show_duration

if TYPE_CHECKING:
    from topology.load import Pipeline


def remarks(pipeline: Pipeline) -> list[str]:
    """One line each; empty for most pipelines."""
    spec = pipeline.spec
    found = []
    least, way = _least_time(pipeline)
    if least >= spec.slo:
        found.append(
            f"the emulated stages {' -> '.join(way)} take {show_duration(least)} for a batch of one, so no query can "
            f"meet the SLO of {show_duration(spec.slo)}"
        )
    for stage in spec.stages:
        if spec.partitions % stage.replicas:
            some, most = spec.partitions // stage.replicas, -(-spec.partitions // stage.replicas)
            found.append(
                f"stage {stage.name!r}: {spec.partitions} partitions do not divide evenly by {stage.replicas} "
                f"replicas: some get {some}, others {most}"
            )
    return found


def _least_time(pipeline: Pipeline) -> tuple[float, tuple[str, ...]]:
    """What the slowest way through emulated stages takes at least, where each query passes all of it."""
    graph = pipeline.graph
    if any(graph.is_chooser(name) for name in graph.order) or pipeline.spec.sinks == "any":
        return 0.0, ()
    ends: dict[str, tuple[float, tuple[str, ...]]] = {}
    for name in graph.order:
        stage = pipeline.spec.stage(name)
        own = stage.emulated.duration(1) if stage.emulated is not None else 0.0
        first = stage.join is not None and stage.join.mode == "any"
        before = [ends[each] for each in graph.predecessors[name]] or [(0.0, ())]
        seconds, way = min(before) if first else max(before)
        ends[name] = (seconds + own, (*way, name) if own else way)
    return max(ends[name] for name in graph.sinks)
