"""The manifest of the workloads in `traces/`: what each file holds, how it was made, and the hash that proves it.

A generated workload is a row of steps, each some seconds at a rate, or one of the shapes of `benchmarks.shapes`;
its counts per second are Poisson draws from a seeded generator, so anyone can make the file again.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from benchmarks.shapes import SHAPES

if TYPE_CHECKING:
    from pathlib import Path


def text(workload: dict[str, Any]) -> str:
    """Make a workload's file by its spec: requests in each second."""
    if "shape" in workload:
        counts = SHAPES[workload["shape"]["name"]].counts(workload["shape"]["seconds"], workload["seed"])
    else:
        rates = [np.full(step["seconds"], step["rate"]) for step in workload["steps"]]
        counts = np.random.default_rng(workload["seed"]).poisson(np.concatenate(rates))
    return "second,requests\n" + "".join(f"{second},{count}\n" for second, count in enumerate(counts))


def read_manifest(path: Path) -> list[dict[str, Any]]:
    """Read `traces/manifest.yaml`."""
    workloads: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))["workloads"]
    return workloads


def problems(manifest: Path) -> list[str]:
    """What differs between the manifest, the files beside it and what their specs make; empty when all is well."""
    found = []
    for workload in read_manifest(manifest):
        made, file = text(workload).encode(), manifest.parent / workload["file"]
        if not file.exists() or file.read_bytes() != made:
            found.append(f"{file}: is not what its spec makes")
        if hashlib.sha256(made).hexdigest() != workload["sha256"]:
            found.append(
                f"{file}: sha256 is {hashlib.sha256(made).hexdigest()}, the manifest says {workload['sha256']}"
            )
    return found
