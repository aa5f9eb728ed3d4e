"""Profiles of the four models, measured on this machine just before they are served: how long batches take here.

It is what `spillway plan profile` does, with fewer runs of each batch size, as a demonstration should begin soon.
Policies then know every stage's durations from the first query on. A copy of the pipeline file that refers to the
profiles is written beside them, so that `spillway whatif` and `spillway serve` can be tried with it, too.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from examples.plates import payload
from spillway.agents.cli.commands.serve import ONE_THREAD_EACH
from spillway.agents.profiling.process import Effort
from spillway.agents.profiling.profiler import Profiler
from spillway.topology.load import load
from spillway.topology.profiles import write_profiles

if TYPE_CHECKING:
    from spillway.topology.load import Pipeline
    from spillway.topology.profiles import StageProfile

PIPELINE = Path(__file__).parent / "pipeline.yaml"
PROFILE = "profile.yaml"
SAMPLES = 16  # plates of four, five and six digits
EFFORT = Effort(warm_up=2, runs=12, seconds=1.0)
SIZES = (1, 2, 4)  # and each stage's largest


def profiled(folder: Path) -> Pipeline:
    """Measure every stage; the pipeline with its profiles, both written to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_profiles(folder / PROFILE, measured(load(PIPELINE)))
    copy = folder / PIPELINE.name
    copy.write_text(f"{PIPELINE.read_text('utf-8')}profile: {PROFILE}\n", encoding="utf-8")
    return load(copy)


def measured(pipeline: Pipeline) -> dict[str, StageProfile]:
    """The profile of each stage."""
    for name in ONE_THREAD_EACH:
        os.environ.setdefault(name, "1")  # as a served stage has it
    rng = np.random.default_rng(0)
    samples = [payload.scene(index, rng) for index in range(SAMPLES)]
    profiler = Profiler(pipeline, samples=samples, sizes=SIZES, effort=EFFORT)
    return {stage.name: profiler.profile(stage.name) for stage in pipeline.written.stages}
