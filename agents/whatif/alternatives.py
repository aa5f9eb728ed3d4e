"""What is to be tried: policies, sizes and SLOs, each with each.

A size is a change of `workers`, `fronts` or `batch` of one or more stages. Every dimension begins with what the
pipeline file says, so each alternative stands beside the present one; several sizes of one dimension exclude each
other. A pipeline with other sizes is the same pipeline in all else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Final

from lineage.errors import UsageError
from topology.names import meant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topology.load import Pipeline
    from topology.spec import StageSpec

DIMENSIONS: Final = ("workers", "fronts", "batch")
MOST: Final = 64  # alternatives in one table

Sizes = dict[str, int]  # by stage


@dataclass(frozen=True, slots=True)
class Alternative:
    """One thing to try; what is None or empty is as the pipeline file says."""

    policy: str | None = None
    sizes: Mapping[str, Sizes] = field(default_factory=dict)  # by dimension
    slo: float | None = None

    @property
    def label(self) -> str:
        words = []
        for dimension, sizes in self.sizes.items():
            mark = "" if dimension == "workers" else f" {dimension}"
            words += [f"{stage}={number}{mark}" for stage, number in sizes.items()]
        if self.slo is not None:
            words.append(f"SLO {1000 * self.slo:g} ms")
        return " ".join(words) or "as the file says"


def alternatives(
    policies: Sequence[str], sizes: Mapping[str, Sequence[Sizes]], slos: Sequence[float]
) -> list[Alternative]:
    """Every policy with every size of each dimension and every SLO; the file's own size is always among them."""
    names: list[str | None] = [*dict.fromkeys(policies)] or [None]
    objectives: list[float | None] = [*slos] or [None]
    each: list[list[Sizes | None]] = [[None, *sizes.get(dimension, ())] for dimension in DIMENSIONS]
    found = []
    for chosen in product(*each):
        taken = {dimension: size for dimension, size in zip(DIMENSIONS, chosen, strict=True) if size is not None}
        found += [Alternative(name, taken, slo) for slo in objectives for name in names]
    if len(found) > MOST:
        raise UsageError(
            f"{len(found)} alternatives are too many for one table (each policy with each size and SLO): at most {MOST}"
        )
    return found


def resized(pipeline: Pipeline, sizes: Mapping[str, Sizes]) -> Pipeline:
    """The pipeline with other sizes. Raises `UsageError` for an unknown stage or a size that cannot be served."""
    spec = pipeline.spec
    known = [stage.name for stage in spec.stages]
    for dimension, chosen in sizes.items():
        for name, number in chosen.items():
            if name not in known:
                raise UsageError(f"--{dimension}: pipeline {spec.name!r} has no stage {name!r}; {meant(name, known)}")
            if number < 1:
                raise UsageError(f"--{dimension}: stage {name} needs at least 1, not {number}")
            if dimension in ("workers", "fronts") and number > 1 and spec.stage(name).stateful:
                raise UsageError(
                    f"--{dimension}: stage {name} keeps a state, which one member of each shard works with: it has no "
                    "more; change 'shards' in the pipeline file, if its state is keyed"
                )
            if dimension == "fronts" and number > spec.partitions:
                raise UsageError(
                    f"--fronts: stage {name} cannot have {number} fronts, as each needs one of the "
                    f"{spec.partitions} partitions: give it more --workers"
                )
            most = spec.stage(name).batching.max
            if dimension == "batch" and number > most:
                raise UsageError(f"--batch: stage {name} takes at most {most} (its batching.max)")
    stages = tuple(_resized(stage, sizes) for stage in spec.stages)
    return replace(pipeline, spec=spec.model_copy(update={"stages": stages}))


def _resized(stage: StageSpec, sizes: Mapping[str, Sizes]) -> StageSpec:
    chosen = {dimension: by[stage.name] for dimension, by in sizes.items() if stage.name in by}
    fronts = chosen.get("fronts", stage.workers.fronts)
    count = chosen.get("workers", stage.workers.count)
    if count is not None and count < fronts:
        raise UsageError(
            f"stage {stage.name} cannot deal out {count} workers to {fronts} fronts, as each needs one: give it more "
            "--workers or fewer --fronts"
        )
    resized = stage.with_workers(count=count, fronts=fronts)
    return resized.with_batching(size=chosen["batch"], limit="fixed") if "batch" in chosen else resized
