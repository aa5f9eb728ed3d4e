"""What a learner's owners say, which its truths cannot: the sections of its ensemble, or the generations to hold.

A client that may send truths may send any. So what a learner goes by beside them is read where only owners write: the
parent's table of sizes (`spillway.topology.ensembles`), or the log of generations (`spillway.producers.generations`). A
primary reads it when a batch begins, and what comes of it is in the state and its versions: backups have that, and
nobody computes a learner's batches again (its replication is nspb, `spillway.topology.rules.tables`). Both only go
forward, by epochs and numbers that the state has, too: a primary that reads late changes nothing back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.agents.live.sizes import Sizes
from spillway.producers.generations import Followed
from spillway.topology import topics
from spillway.topology.ensembles import record_key

if TYPE_CHECKING:
    from spillway.agents.live.stage.config import StageProcessConfig
    from spillway.producers.connection import ClientSettings
    from spillway.producers.kafka.log import KafkaLog
    from spillway.topology.ensembles import Served
    from spillway.topology.load import Pipeline


class Sections:
    """The newest section of an ensemble that is of the pipeline file. `log` is followed while its context is open."""

    def __init__(self, settings: ClientSettings, parent: Pipeline, stage: str, kafka: KafkaLog) -> None:
        self.log = Sizes(settings, parent.spec.name, log=kafka)
        self.log.follow(self._look)
        self._key, self._frame = record_key(stage), parent.frame
        self._newest: Served | None = None

    def read(self) -> None:
        """Wait until the log is read to its end; not for long where it cannot be."""
        self.log.newest()

    def now(self) -> Served | None:
        return self._newest

    def _look(self) -> None:
        found = self.log.ensembles(0.0).get(self._key)
        if found is not None and found.digest == self._frame:
            self._newest = found


class HeldGenerations:
    """The generations to hold, as texts, each with its theta; without one where it is the class's own."""

    def __init__(self, settings: ClientSettings, pipeline: str, kafka: KafkaLog) -> None:
        self.log = Followed(settings, topics.generations(pipeline), log=kafka)

    def read(self) -> None:
        self.log.wait()

    def now(self) -> dict[str, str]:
        known = self.log.now
        if self.log.stale:  # what is read so far may have been replaced
            return {}
        return {str(number): known.known[number].theta for number in known.held}


def control_of(config: StageProcessConfig, kafka: KafkaLog) -> Sections | HeldGenerations | None:
    """What the stage goes by; None of one that is no learner with owners who say something."""
    if config.spec.has_generations:
        return HeldGenerations(config.settings, config.pipeline.spec.name, kafka)
    if (parent := config.pipeline.parent) is None:
        return None
    learners = {each.learner.name: each.name for each in parent.spec.stages if each.learner is not None}
    stage = learners.get(config.stage)
    return None if stage is None else Sections(config.settings, parent, stage, kafka)
