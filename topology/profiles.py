"""Profile files: how long each batch size of a real model took, and under what conditions that was measured.

`spillway profile` writes one for a pipeline (any number of its stages), and the pipeline refers to it with
`profile: FILE`, at its top for all stages with a model or in one stage; the path is relative to the pipeline file. An
emulated stage needs none: its durations are its profile.

    spillway-profile: 1
    stages:
      detect:
        measured: {model: "models:Detect", source: 3f..., ..., device_name: NVIDIA H200, threads: 1}
        batches:
          1: {p50: 0.0081, p95: 0.0084, memory: 52428800, runs: 30}

Durations are seconds, of the model alone, as the live stage measures them; `memory` is the process's peak in bytes, or
the device's where the stage runs on one. Between two sizes the durations lie on a line. `Conditions.stale` says, in
words, why a profile does not speak of a model any more.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from lineage.errors import SpecError
from topology.problems import InvalidPipelineError
from topology.reading.document import MAX_BYTES, Document
from topology.spec import EmulatedSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

VERSION: Final = 1
_VERSION_KEY: Final = "spillway-profile"
_DIGITS: Final = 6  # of a duration: more says nothing
_NUMBER_LIKE: Final = re.compile(r"[-+.]?[0-9]")
_HEADER: Final = "# Written by `spillway profile`, which also renews it. Durations are seconds.\n"


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Conditions(_Told):
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
    "model": "it was measured of model {before}, not of {after}",
    "source": "the file of the model, or of its module, has changed since",
    "arguments": "the model's arguments have changed since",
    "weights": "the files that the model's arguments name have changed since",
    "version": "the model's version was {before}, and is {after} now",
    "where": "the model ran on a {before} then, and runs on a {after} now",
    "device": "it was measured on {before}, and the stage runs on {after}",
    "device_name": "it was measured on another device, {before}, and this one is {after}",
    "torch": "it was measured with torch {before}, and torch {after} is installed",
    "threads": "it was measured with {before} threads for a torch operation, and {after} are used now",
}


class Measured(_Told):
    """One batch size: seconds at the median and the 95th percentile of `runs`, and bytes at the peak."""

    p50: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    p95: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    memory: Annotated[int, Field(ge=0)]
    runs: Annotated[int, Field(ge=1)]


def _sorted(batches: Any) -> Any:
    return dict(sorted(batches.items())) if isinstance(batches, dict) else batches


class StageProfile(_Told):
    """One stage's durations by batch size, and the conditions under which they were measured."""

    measured: Conditions
    batches: Annotated[
        dict[Annotated[int, Field(strict=True, ge=1)], Measured], Field(min_length=1), BeforeValidator(_sorted)
    ]

    def duration(self) -> Callable[[int], float]:
        return EmulatedSpec(table={size: found.p50 for size, found in self.batches.items()}).duration


class _File(_Told):
    version: Annotated[Literal[1], Field(alias=_VERSION_KEY)]
    stages: dict[str, StageProfile]


def read_profiles(path: Path) -> dict[str, StageProfile]:
    """The profiles in a file, by stage. Raises SpecError that names the file, the place and the fix."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SpecError(f"cannot read the profile file {path}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise SpecError(f"{path} is larger than {MAX_BYTES} bytes; is it a profile file?")
    document = Document(str(path), data.decode("utf-8", "replace"))
    if document.findings:
        raise InvalidPipelineError(str(path), document.findings)
    try:
        return _File.model_validate(document.value).stages
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        steps = tuple(step for step in first["loc"] if step != "[key]")
        place = document.place(steps)
        raise SpecError(
            f"{path}:{place.line}:{place.column}: {place.path or 'the file'}: {first['msg']}; profile files are "
            "written by 'spillway profile'"
        ) from error


def write_profiles(path: Path, profiles: Mapping[str, StageProfile]) -> None:
    """Write a profile file, whole or not at all. Raises SpecError where it cannot be written."""
    told = {name: profile.model_dump() for name, profile in profiles.items()}
    for stage in told.values():
        for found in stage["batches"].values():
            found["p50"], found["p95"] = (float(f"{found[key]:.{_DIGITS}g}") for key in ("p50", "p95"))
    text = _HEADER + yaml.dump({_VERSION_KEY: VERSION, "stages": told}, Dumper=_Dumper, sort_keys=False, width=120)
    beside = path.with_name(f"{path.name}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise SpecError(f"cannot write the profile file {path}: {error.strerror or error}") from error


class _Dumper(yaml.SafeDumper):
    """One line per batch size; text that begins like a number in quotes, whatever PyYAML takes it for."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style='"' if _NUMBER_LIKE.match(data) else None)

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:  # noqa: FBT001 - PyYAML's signature
        flow = "p50" in mapping if isinstance(mapping, dict) else flow_style
        return super().represent_mapping(tag, mapping, flow_style=flow)


_Dumper.add_representer(str, _Dumper.represent_str)
