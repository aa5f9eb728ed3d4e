"""What is allowed in a pipeline, but is likely not what its author wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.planning import least_time
from topology.quantities import show_duration

if TYPE_CHECKING:
    from topology.load import Pipeline


def remarks(pipeline: Pipeline) -> list[str]:
    """One line each; empty for most pipelines."""
    spec = pipeline.spec
    found = []
    single = {name: duration(1) for name, duration in pipeline.durations.items()}
    least, way = least_time(spec, pipeline.graph, single)
    if least >= spec.slo:
        found.append(
            f"the stages {' -> '.join(way)} take {show_duration(least)} for a batch of one, so no query can "
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
