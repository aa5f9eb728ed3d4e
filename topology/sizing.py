"""A checked pipeline with what its profiles say of it: every stage's durations, and the batches planned from them.

Batches are planned (`topology.planning`) where the durations of all stages are known: emulated, or measured and read
from a profile file. Otherwise a batch that is not given is `batching.max`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lineage.errors import SpecError
from topology.names import meant
from topology.planning import TooSlowError, plan_batches
from topology.problems import Problem
from topology.profiles import read_profiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from topology.profiles import StageProfile
    from topology.spec import PipelineSpec, StageSpec

    Durations = Mapping[str, Callable[[int], float]]


def profile_file(spec: PipelineSpec, stage: StageSpec) -> str | None:
    """The profile file that a stage refers to, as written; None for an emulated stage."""
    return None if stage.model is None else stage.profile or spec.profile


def profiles_of(spec: PipelineSpec, folder: Path, problems: list[Problem]) -> dict[str, StageProfile]:
    """The profile of every stage that refers to a file; what is wrong with one adds to `problems`."""
    files: dict[str, dict[str, StageProfile] | str] = {}
    found = {}
    for number, stage in enumerate(spec.stages):
        file = profile_file(spec, stage)
        if file is None:
            continue
        if file not in files:
            try:
                files[file] = read_profiles(folder / file)
            except SpecError as error:
                files[file] = f"{error}; 'spillway profile' makes one"
        place = ("stages", number, "profile") if stage.profile is not None else ("profile",)
        known = files[file]
        wrong = known if isinstance(known, str) else _unfit(stage, file, known)
        if wrong is not None:
            problems.append(Problem(place, wrong))
        elif not isinstance(known, str):
            found[stage.name] = known[stage.name]
    return found


def _unfit(stage: StageSpec, file: str, known: Mapping[str, StageProfile]) -> str | None:
    """Why a profile file does not serve this stage; None where it does."""
    renew = f"run 'spillway profile' with --stage {stage.name}"
    if stage.name not in known:
        return f"{file} has no profile of stage {stage.name!r}; {meant(stage.name, known)}; {renew} to add it"
    sizes = known[stage.name].batches
    if min(sizes) != 1:
        return f"the profile of {stage.name!r} in {file} begins with a batch of {min(sizes)}; {renew}"
    most = stage.batching.limit
    if max(sizes) < most:
        field = "batching.size" if stage.batching.size is not None else "batching.max"
        return (
            f"the profile of {stage.name!r} in {file} ends with a batch of {max(sizes)}, and {field} is {most}; {renew}"
        )
    return None


def durations_of(spec: PipelineSpec, profiles: Mapping[str, StageProfile]) -> dict[str, Callable[[int], float]]:
    """Seconds of a batch of n, for every stage of which they are known."""
    known = {name: profile.duration() for name, profile in profiles.items()}
    return known | {stage.name: stage.emulated.duration for stage in spec.stages if stage.emulated is not None}


def planned(
    spec: PipelineSpec, durations: Durations, problems: list[Problem], slo: float | None = None
) -> PipelineSpec:
    """The pipeline with a batch for every stage, as far as durations are known; that it is too slow is a problem."""
    if any(stage.name not in durations for stage in spec.stages):
        return spec
    try:
        batches = plan_batches(spec, durations, slo)
    except TooSlowError as error:
        problems.append(Problem(("slo",), str(error)))
        return spec
    stages = tuple(stage.with_batching(size=batches[stage.name]) for stage in spec.stages)
    return spec.model_copy(update={"stages": stages})
