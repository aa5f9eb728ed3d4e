"""The paper's four applications, and how many workers each is given for a load."""

from __future__ import annotations

import json
from functools import cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import yaml

from spillway.lineage.errors import UsageError
from spillway.topology.load import load, parse
from spillway.topology.sections import DEFAULT_MAX_BATCH

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spillway.topology.load import Pipeline
    from spillway.topology.spec import PipelineSpec

APPLICATIONS = ("tm", "lv", "ga", "da")
FOLDER = Path(__file__).parents[2] / "examples" / "applications"
EXCESS = 0.01  # the share of requests above the capacity that a load is provisioned for


@cache
def application(name: str) -> Pipeline:
    file = FOLDER / f"{name}.yaml"
    if not file.is_file():
        raise UsageError(f"there is no application {name!r} in {FOLDER}; there are: {', '.join(APPLICATIONS)}")
    return load(file)


def from_artifact(file: Path) -> Pipeline:
    """Read a pipeline in the JSON form of PARD's artifact: of modules, each of which becomes an emulated stage.

    A module has a name, an id, the ids of its predecessors (`pres`), a profile (`alpha_ms`, `beta_ms`) and a planned
    `batch`. Raises UsageError where something is missing, SpecError where the pipeline cannot be.
    """
    try:
        said = json.loads(file.read_text())
        names = {module["id"]: module["name"] for module in said["modules"]}
        stages = [
            {
                "name": module["name"],
                "after": [names[before] for before in module["pres"]],
                "emulated": {"alpha": module["alpha_ms"] / 1000, "beta": module["beta_ms"] / 1000},
                "batching": {"size": module["batch"], "max": max(module["batch"], DEFAULT_MAX_BATCH)},
            }
            for module in said["modules"]
        ]
        spec = {"name": said["pipeline"], "slo": said["slo_ms"] / 1000, "stages": stages}
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{file} is not in the form of PARD's artifact: {error!r}") from error
    return parse(yaml.safe_dump(spec), file)


def throughput(spec: PipelineSpec) -> dict[str, float]:
    """Requests a second that one worker of each stage serves with full batches."""
    found = {}
    for stage in spec.stages:
        if stage.emulated is None:
            raise UsageError(f"{spec.name}: stage {stage.name} has no emulated durations")
        found[stage.name] = stage.batching.most / stage.emulated.duration(stage.batching.most)
    return found


def needed_capacity(due: NDArray[np.float64], excess: float = EXCESS) -> float:
    """Requests a second beyond which only `excess` of the requests come, by the counts of each second."""
    counts = np.sort(np.bincount(due.astype(np.int64)).astype(np.float64))
    total = counts.sum()
    # What lies above each level, for the counts themselves as levels; the answer is between two of them.
    above = np.cumsum(counts[::-1])[::-1] - counts * np.arange(len(counts), 0, -1)
    index = int(np.argmax(above <= excess * total))
    if index == 0:
        return float(counts[0])
    over = len(counts) - index
    return float(counts[index] - (excess * total - above[index]) / over)


def provision(spec: PipelineSpec, capacity: float) -> tuple[int, ...]:
    """Workers of each stage, so that each serves `capacity` requests a second with full batches."""
    return tuple(ceil(capacity / each - 1e-9) for each in throughput(spec).values())


def capacity_of(spec: PipelineSpec, workers: tuple[int, ...]) -> float:
    """Requests a second that the pipeline serves with full batches: those of its slowest stage."""
    each = throughput(spec).values()
    return min(count * rate for count, rate in zip(workers, each, strict=True))
