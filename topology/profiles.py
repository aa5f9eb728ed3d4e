"""Profile files: how long each batch size of a real model took, and under what conditions that was measured.

`spillway plan profile` writes one for a pipeline (any number of its stages), and the pipeline refers to it with
`profile: FILE`, at its top for all stages with a model or in one stage; the path is relative to the pipeline file. An
emulated stage needs none: its durations are its profile.

    spillway-profile: 1
    stages:
      detect:
        measured: {model: "models:Detect", source: 3f..., ..., device_name: NVIDIA H200, threads: 1}
        batches:
          1: {p50: 0.0081, p95: 0.0084, memory: 52428800, runs: 30}

Durations are seconds, of the model alone, as the live stage measures them; `memory` is the process's peak in bytes, or
the device's where the stage runs on one; `load` the time until a new process was ready. Between two sizes the durations
lie on a line. `Conditions.stale` says, in words, why a profile does not speak of a model any more.

A file may also say what the stages' models take on other kinds of hardware, for `spillway plan provision`:

    hardware:
      k80:
        detect: {alpha: 20ms, beta: 5ms, most: 32, source: "thesis, section 4.2"}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from spillway.topology.reading.models import read_model, write_yaml
from spillway.topology.sections import Count, Section, Size
from spillway.topology.spec import EmulatedSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

VERSION: Final = 1
_VERSION_KEY: Final = "spillway-profile"
_HEADER: Final = "# Written by `spillway plan profile`; run it again to renew this file. Durations are seconds.\n"


class Conditions(Section):
    """What was measured, and on what. Hashes are of text and bytes; None where there was nothing to hash or to know."""

    model: str
    source: str | None
    """Of the model's file, or of that of its module."""
    arguments: str
    weights: str | None
    """Of the files that the arguments name."""
    version: str | None
    """The spec's."""
    where: Literal["thread", "process"]
    device: str
    device_name: str | None
    torch: str | None
    """Its release, where the model uses it."""
    threads: int
    """Of one torch operation."""

    def stale(self, now: Conditions) -> str | None:
        """Why what was measured under these conditions does not hold under those of `now`; None where it does."""
        for field, what in _CHANGES.items():
            before, after = getattr(self, field), getattr(now, field)
            if before != after and not (field == "device_name" and after is None):
                return what.format(before=before, after=after)
        return None


# Of each condition, what its change means. A device that this machine does not have cannot be compared with.
_CHANGES: Final = {
    "model": "it was measured with model {before}, not {after}",
    "source": "the file of the model, or of its module, has changed since",
    "arguments": "the model's arguments have changed since",
    "weights": "the files that the model's arguments name have changed since",
    "version": "the model's version was {before}, and is {after} now",
    "where": "the model was a {before} then, and is a {after} now",
    "device": "it was measured on {before}, and the stage runs on {after}",
    "device_name": "it was measured on another device, {before}, and this one is {after}",
    "torch": "it was measured with torch {before}, and torch {after} is installed",
    "threads": "it was measured with {before} threads for a torch operation, and {after} are used now",
}


class Measured(Section):
    """One batch size: seconds at the median and the 95th percentile of `runs`, and bytes at the peak."""

    p50: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    p95: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    memory: Annotated[int, Field(ge=0)]
    runs: Annotated[int, Field(ge=1)]


def _sorted(batches: Any) -> Any:
    return dict(sorted(batches.items())) if isinstance(batches, dict) else batches


class StageProfile(Section):
    """One stage's durations by batch size, and the conditions under which they were measured."""

    measured: Conditions
    load: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Seconds from the start of a process to a model that is ready."""
    batches: Annotated[
        dict[Annotated[int, Field(strict=True, ge=1)], Measured], Field(min_length=1), BeforeValidator(_sorted)
    ]

    def duration(self) -> Callable[[int], float]:
        return EmulatedSpec(table={size: found.p50 for size, found in self.batches.items()}).duration


class HardwareProfile(EmulatedSpec):
    """What a stage's model takes on a kind of hardware that is not this machine: `alpha` + `beta` n, or a `table`."""

    most: Count = 64
    """The largest batch that it takes; of a table, its largest size."""
    memory: Size | None = None
    """Of the device, at the largest batch."""
    source: str = ""
    """Where the figures are from."""

    @model_validator(mode="after")
    def _told(self) -> Self:
        line = self.alpha is not None or self.beta is not None
        if line == (self.table is not None):
            raise ValueError("give alpha and beta, or a table of seconds by batch size")
        if self.duration(1) <= 0:
            raise ValueError("a batch of 1 takes no time; give alpha or beta")
        return self

    @property
    def largest(self) -> int:
        return self.most if self.table is None else max(self.table)


class ProfileFile(Section):
    """All that a profile file holds."""

    version: Annotated[Literal[1], Field(alias=_VERSION_KEY)]
    stages: dict[str, StageProfile] = Field(default_factory=dict)
    hardware: dict[str, dict[str, HardwareProfile]] = Field(default_factory=dict)
    """By kind and stage: what `spillway plan profile` did not measure here, but keeps."""


def read_profile_file(path: Path) -> ProfileFile:
    """All that a profile file holds. Raises SpecError that names the file, the place and the fix."""
    return read_model(path, ProfileFile, "profile file", "profile files are written by 'spillway plan profile'")


def read_profiles(path: Path) -> dict[str, StageProfile]:
    """The measured profiles in a file, by stage. Raises SpecError that names the file, the place and the fix."""
    return read_profile_file(path).stages


def write_profiles(
    path: Path,
    profiles: Mapping[str, StageProfile],
    hardware: Mapping[str, Mapping[str, HardwareProfile]] | None = None,
) -> None:
    """Write a profile file, whole or not at all. Raises SpecError where it cannot be written."""
    told = {name: profile.model_dump(exclude_none=True) for name, profile in profiles.items()}
    for name, stage in told.items():
        stage["measured"] = profiles[name].measured.model_dump()
    file: dict[str, Any] = {_VERSION_KEY: VERSION, "stages": told}
    if hardware:
        file["hardware"] = {
            kind: {name: each.model_dump(exclude_defaults=True) for name, each in stages.items()}
            for kind, stages in hardware.items()
        }
    write_yaml(path, file, "profile file", _HEADER)
