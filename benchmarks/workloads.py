"""The manifest of the workloads in `traces/`: what each file holds, how it was made, and the hash that proves it.

A generated workload is a row of steps, each some seconds at a rate, or one of the shapes of `benchmarks.shapes`;
its counts per second are Poisson draws from a seeded generator, so anyone can make the file again.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from benchmarks.shapes import SHAPES
from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Step(_Frozen):
    """Some seconds at one rate, in requests per second."""

    seconds: Annotated[int, Field(ge=1)]
    rate: Annotated[float, Field(ge=0)]


class ShapeSpec(_Frozen):
    """Some seconds of a shape, at its own rate and burstiness."""

    name: Annotated[str, Field(pattern="^(" + "|".join(SHAPES) + ")$")]
    seconds: Annotated[int, Field(ge=1)]


class Workload(_Frozen):
    """One file of counts per second (`second,requests`) and the spec that makes it."""

    file: str
    about: str
    seed: int
    steps: tuple[Step, ...] = ()
    shape: ShapeSpec | None = None
    requests: int
    sha256: str

    @model_validator(mode="after")
    def _one_spec(self) -> Workload:
        if bool(self.steps) == (self.shape is not None):
            raise ValueError(f"{self.file} is made of steps or of a shape: give one of them")
        return self

    def counts(self) -> NDArray[np.int64]:
        """Requests in each second."""
        if self.shape is not None:
            return SHAPES[self.shape.name].counts(self.shape.seconds, self.seed)
        rng = np.random.default_rng(self.seed)
        rates = np.concatenate([np.full(step.seconds, step.rate) for step in self.steps])
        return rng.poisson(rates)

    def text(self) -> str:
        rows = (f"{second},{count}\n" for second, count in enumerate(self.counts()))
        return "second,requests\n" + "".join(rows)


def read_manifest(path: Path) -> tuple[Workload, ...]:
    """Read `traces/manifest.yaml`. Raises UsageError naming the file and what is wrong in it."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return tuple(Workload.model_validate(entry) for entry in content["workloads"])
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValidationError) as error:
        raise UsageError(f"{path}: no manifest of workloads: {error}") from error


def problems(manifest: Path) -> list[str]:
    """What differs between the manifest, the files beside it and what their specs make; empty when all is well."""
    found = []
    for workload in read_manifest(manifest):
        made = workload.text().encode()
        file = manifest.parent / workload.file
        if not file.exists() or file.read_bytes() != made:
            found.append(f"{file}: is not what its spec makes")
        if hashlib.sha256(made).hexdigest() != workload.sha256:
            found.append(f"{file}: sha256 is {hashlib.sha256(made).hexdigest()}, the manifest says {workload.sha256}")
        if int(workload.counts().sum()) != workload.requests:
            found.append(f"{file}: {workload.counts().sum()} requests, the manifest says {workload.requests}")
    return found
