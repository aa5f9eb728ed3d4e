"""What is allowed in a pipeline, but is likely not what its author wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.planning import least_time
from topology.quantities import show_duration

if TYPE_CHECKING:
    from topology.load import Pipeline

_ALONE = "it has no backup, so its state is read from the log by the process that is started anew"
_KEYS = "send every query with its key, so that all of a key reach the same shard"


def remarks(pipeline: Pipeline) -> list[str]:
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
        count, parts = (stage.shards, "shards") if stage.stateful else (stage.fronts, "fronts")
        if spec.partitions % count:
            some, most = spec.partitions // count, -(-spec.partitions // count)
            found.append(
                f"stage {stage.name!r}: {spec.partitions} partitions do not divide evenly by {count} "
                f"{parts}: some get {some}, others {most}"
            )
        if stage.stateful and not stage.replicated:
            found.append(f"stage {stage.name!r}: its state is not replicated; it begins anew when its process ends")
        elif stage.state is not None and not stage.state.backups:
            found.append(f"stage {stage.name!r}: {_ALONE}")
        if stage.state is not None and stage.state.kind == "keyed" and stage.shards > 1:
            found.append(f"stage {stage.name!r}: {_KEYS}")
    return found
