"""What happens to the workers of a pipeline in memory: how long their batches take, and when they die.

A stage's workers have names: `stage.workers` are its own, `stage.NAME` those of the member or variant NAME, and
`stage.copies` and `stage.parity` those that run beside its own. They die by themselves where they would be processes;
threads die with their stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spillway.topology.variants.variant import variants_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from random import Random

    from spillway.agents.live.stage.config import StageConfig
    from spillway.topology.load import Pipeline
    from spillway.topology.spec import StageSpec

_BATCH: Final = 0.001  # seconds that a batch of a model without a profile takes
_DEATHS: Final = 0.05  # share of the batches at which a worker that is to be killed dies
_SLOW: Final = 0.02  # share of the batches that take long at a worker that is to be slow
_TIMES: Final = 100.0  # as long as others


def name_of(stage: str, lane: str) -> str:
    """Return what workers are called; `lane`: as in `Crews.make`."""
    return f"{stage}.{lane or 'workers'}"


def processes_of(config: StageConfig) -> list[str]:
    """Return the names of a stage's workers that would be processes."""
    spec = config.spec
    lanes = spec.lanes or (("",) if config.processes else ())
    beside = [name for name, section in (("copies", spec.copies), ("parity", spec.coding)) if section is not None]
    return [name_of(spec.name, lane) for lane in (*lanes, *beside)]


class Conditions:
    """What `serve` was asked of workers, drawn by the world's chance."""

    def __init__(
        self, pipeline: Pipeline, random: Random, *, kill: Collection[str], slow: Collection[str], real_time: bool
    ) -> None:
        self.random = random
        self._pipeline, self._kill, self._slow, self._real = pipeline, kill, slow, real_time

    def duration(self, spec: StageSpec, lane: str = "") -> Callable[[int], float] | None:
        """Return how long a batch of n takes at a worker, in seconds; None: as long as its model."""
        if self._real and spec.emulated is None:
            return None
        known = self._known(lane, spec.name)
        if name_of(spec.name, lane) not in self._slow:
            return known
        return lambda size: known(size) * (_TIMES if self.random.random() < _SLOW else 1.0)

    def dies(self, name: str) -> bool:
        """Draw whether a worker dies at its next batch."""
        return name in self._kill and self.random.random() < _DEATHS

    def _known(self, lane: str, stage: str) -> Callable[[int], float]:
        section = self._pipeline.spec.stage(stage).variants
        if section is not None:
            return next(each.duration for each in variants_of(section) if each.name == lane)
        return self._pipeline.durations.get(stage, lambda _size: _BATCH)
