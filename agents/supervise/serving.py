"""Who serves a pipeline, for whoever is about to ask it: by the claims in `<p>.owners`, in one short read.

A supervisor claims its processes before it starts them, so a pipeline that is starting counts as served. So does one
whose owner was killed on another machine: only a process of this machine is known to be gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.agents.live.topics import present
from spillway.agents.supervise.child import GATE
from spillway.agents.supervise.ownership import gone, words_in
from spillway.agents.supervise.registry import ServeEntry
from spillway.checkpoint.owners import Owners
from spillway.lineage.errors import SpillwayError, TopicError
from spillway.producers.kafka.reading import Reading
from spillway.topology import topics

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline


class NotServedError(SpillwayError):
    """No process of the pipeline runs, so nobody would answer."""


def require_served(settings: ClientSettings, pipeline: Pipeline, run_dir: Path | None = None) -> str:
    """Return what of the pipeline nobody serves, in a sentence; empty where all of it is served.

    `run_dir`: where a supervisor that starts it is registered.

    Raises NotServedError where no process of it is served, BrokerError where the cluster does not say.
    """
    spec = pipeline.spec
    served = _served(settings, spec.name)
    wanted = [GATE, *(stage.name for stage in spec.stages)]
    missing = [name for name in wanted if name not in served]
    if len(missing) == len(wanted):
        starting = None if run_dir is None else ServeEntry.running(run_dir, spec.name)
        if starting is not None:
            raise NotServedError(f"{spec.name} is being started by process {starting.pid}: try again when it is ready")
        raise NotServedError(
            f"no process serves {spec.name} on {settings.bootstrap}: start it with 'spillway serve {pipeline.path}'"
        )
    if not missing:
        return ""
    named = ["the gate" if name == GATE else f"stage {name}" for name in missing]
    return f"no process serves {' and '.join(named)} of {spec.name} now: queries wait there"


def _served(settings: ClientSettings, pipeline: str) -> set[str]:
    """The stages, and the gate, that somebody has claimed."""
    topic, found = topics.owners(pipeline), Owners()
    try:
        with Reading(settings, [(topic, 0)]) as reading:
            for word in words_in(reading.to_the_end()):
                found.take(word)
    except TopicError:
        if present(settings, [topic]):
            raise
        return set()
    return {name.rpartition(".")[0] for name in found.names(gone)}
