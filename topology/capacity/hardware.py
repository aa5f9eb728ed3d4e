"""The hardware that can be had: a catalogue of kinds with prices, and what each stage of a pipeline takes on each.

    spillway-hardware: 1
    kinds:
      cpu: {price: 0.05, count: 512, memory: 4GiB, load: 5s, runs: core}
      k80: {price: 0.634, count: 128, memory: 12GiB, load: 5s, runs: emulated}

A price is for one unit and hour; one worker has one unit. What a stage takes there is in a profile file
(`spillway.topology.profiles`): under `hardware` by the kind's name, else, for `core` and `cuda`, as `spillway plan
profile` measured it. Kinds and figures that are `emulated` are of machines that are not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AfterValidator, Field

from spillway.lineage.errors import SpecError
from spillway.topology import names
from spillway.topology.quantities import show_duration
from spillway.topology.reading.models import read_model
from spillway.topology.sections import Count, Seconds, Section, Size

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from spillway.topology.load import Pipeline
    from spillway.topology.profiles import ProfileFile
    from spillway.topology.spec import StageSpec

DEFAULT_LOAD: Final = 5.0  # seconds until a new worker serves: what the thesis says of its serving systems (4.5)


class Kind(Section):
    """One kind of hardware."""

    price: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Of a unit, an hour."""
    count: Count | None = None
    """How many units can be had; None: any number."""
    memory: Size | None = None
    """Of a unit; None: it is never short."""
    load: Seconds = DEFAULT_LOAD
    """Until a new worker serves, where a profile does not say it."""
    runs: Literal["core", "cuda", "emulated"]
    source: str = ""
    """Where the figures are from, or how they were reckoned."""


class Catalogue(Section):
    """What a catalogue file says."""

    version: Annotated[Literal[1], Field(alias="spillway-hardware")]
    kinds: Annotated[dict[Annotated[str, AfterValidator(names.stage_name)], Kind], Field(min_length=1)]


def read_catalogue(path: Path) -> Catalogue:
    """Read a hardware catalogue. Raises SpecError that names the file, the place and the fix."""
    fix = "write a kind of hardware as {price: 0.05, count: 64, memory: 4GiB, load: 5s, runs: core, cuda or emulated}"
    return read_model(path, Catalogue, "hardware catalogue", fix)


@dataclass(frozen=True, slots=True)
class Option:
    """What one worker of a stage does on one kind of hardware."""

    kind: str
    price: float  # an hour
    durations: tuple[float, ...]  # seconds that a batch of n takes a worker, from 1 to the largest profiled
    load: float  # seconds
    emulated: bool
    overhead: float = 0.0  # seconds of each of them beyond the model

    @property
    def largest(self) -> int:
        return len(self.durations)

    @property
    def batches(self) -> list[int]:
        """The batch limits to try: powers of two, and the largest."""
        return sorted({min(1 << power, self.largest) for power in range(self.largest.bit_length() + 1)})

    def duration(self, count: int) -> float:
        return self.durations[count - 1]

    def throughput(self, batch: int) -> float:
        """Queries per second in full batches: mu of the thesis."""
        return batch / self.durations[batch - 1]

    def fastest(self, batch: int) -> float:
        """The most queries per second with batches of at most `batch`."""
        return max(self.throughput(count) for count in range(1, batch + 1))


def can_be_planned(stage: StageSpec) -> bool:
    """Whether a stage can have any number of workers on any hardware; others keep the sizes of the pipeline's file."""
    return stage.state is None and stage.fronts == 1 and stage.copies is None


def options_of(
    pipeline: Pipeline, catalogue: Catalogue, profiles: ProfileFile, profiles_name: str, overhead: float = 0.0
) -> dict[str, tuple[Option, ...]]:
    """By stage that can be planned, what its workers do on each kind that has a profile and memory enough, by price.

    Without stages that are not measured and have no profile. `overhead`: seconds that a batch takes a worker beyond its
    model. Raises SpecError where a stage can run nowhere.
    """
    for kind in profiles.hardware:
        if kind not in catalogue.kinds:
            meant = names.meant(kind, catalogue.kinds)
            raise SpecError(f"{profiles_name}: hardware.{kind}: the catalogue has no such kind; {meant}")
    found = {}
    for stage in pipeline.written.stages:
        if not can_be_planned(stage):
            continue
        refused: list[str] = []
        options = [
            option
            for name, kind in catalogue.kinds.items()
            if (option := _option(stage, name, kind, profiles, overhead, refused)) is not None
        ]
        if not options and stage.unmeasured:
            continue
        if not options:
            told = "; ".join(refused) or "it has no profile there"
            raise SpecError(
                f"stage {stage.name!r} cannot run on any of {', '.join(catalogue.kinds)}: {told}; measure it with "
                f"'spillway plan profile {pipeline.path}', or give hardware.KIND.{stage.name} in {profiles_name}"
            )
        found[stage.name] = tuple(sorted(options, key=lambda option: (-option.price, option.durations[0])))
    return found


def _option(
    stage: StageSpec, name: str, kind: Kind, profiles: ProfileFile, overhead: float, refused: list[str]
) -> Option | None:
    given = profiles.hardware.get(name, {}).get(stage.name)
    measured = profiles.stages.get(stage.name)
    duration: Callable[[int], float]
    if given is not None:
        largest, duration, memory, load = given.largest, given.duration, given.memory or 0, given.load
    elif measured is not None and kind.runs == ("cuda" if measured.measured.device != "cpu" else "core"):
        largest, duration, load = max(measured.batches), measured.duration(), measured.load
        memory = max(each.memory for each in measured.batches.values())
    else:
        return None
    if kind.memory is not None and memory > kind.memory:
        refused.append(f"it needs {memory >> 20} MiB, and {name} has {kind.memory >> 20} MiB")
        return None
    largest = min(largest, stage.batching.size or stage.batching.max)
    durations = tuple(duration(count) for count in range(1, largest + 1))
    for count, seconds in enumerate(durations, start=1):
        if seconds <= 0:
            raise SpecError(
                f"the profile of {stage.name!r} on {name} gives {show_duration(seconds)} for a batch of {count}"
            )
    taken = tuple(seconds + overhead for seconds in durations)
    return Option(name, kind.price, taken, kind.load if load is None else load, kind.runs == "emulated", overhead)
