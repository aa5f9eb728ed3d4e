"""`spillway plan profile`: how long a pipeline's models take over batch sizes, written to a profile file."""

from __future__ import annotations

import json
import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from spillway.agents.cli.commands.serve import ONE_THREAD_EACH
from spillway.agents.cli.options import FILE, json_option, pipeline_argument
from spillway.agents.cli.summary import progress_bar
from spillway.agents.profiling.process import SAMPLES, Effort
from spillway.agents.profiling.profiler import LeftOutError, Profiler, parse_sizes
from spillway.lineage.errors import SpecError, UsageError, WireError
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.lineage.values.json_text import read_inputs
from spillway.producers.load.payloads import find_payload
from spillway.producers.recording import read_recording
from spillway.producers.recording.history import inputs
from spillway.topology.load import load
from spillway.topology.profiles import read_profile_file, write_profiles
from spillway.topology.quantities import show_duration
from spillway.topology.sizing import profile_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spillway.topology.load import Pipeline
    from spillway.topology.profiles import HardwareProfile, StageProfile
    from spillway.topology.spec import StageSpec

    Sample = dict[str, Any]


def given_samples(source: str, seed: int) -> list[Sample]:
    """The first queries of a recording's folder, of a file of JSON objects, or of a `module:function`."""
    path = Path(source)
    if path.is_dir():
        found = [dict(each) for each in islice(inputs(read_recording(path), DEFAULT_LIMITS), SAMPLES)]
    elif path.is_file():
        found = list(_listed(path))
    elif ":" in source:
        function, rng = find_payload(source), np.random.default_rng(seed)
        try:
            found = [dict(function(index, rng)) for index in range(SAMPLES)]
        except Exception as error:  # a user's function may raise anything
            raise UsageError(f"the sample function {source} failed: {error!r}") from error
    else:
        raise UsageError(f"there is no recording, no file of queries and no module:function {source!r} to sample from")
    if not found:
        raise UsageError(f"{source} holds no query to sample from")
    return found


def _listed(path: Path) -> Iterator[Sample]:
    lines = path.read_text("utf-8").splitlines()
    for number, line in enumerate(lines[:SAMPLES], start=1):
        if not line.strip():
            continue
        try:
            yield read_inputs(line)
        except WireError as error:
            raise UsageError(f"{path}:{number}: {error}; give the inputs of one query per line") from error


@click.command()
@pipeline_argument
@click.option("--stage", "stages", multiple=True, metavar="NAME", help="Only this stage; can be repeated.")
@click.option(
    "--batches",
    callback=lambda _context, _parameter, value: None if value is None else parse_sizes(value),
    metavar="N,N..M",
    help="Batch sizes, besides 1 and each stage's largest.  [default: 1..64]",
)
@click.option(
    "--sample",
    metavar="WHAT",
    help="Queries for the first stages: a recording, a file of JSON lines or module:function.",
)
@click.option("--runs", type=click.IntRange(1), default=30, show_default=True, help="Timed runs of each size.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of generated samples.")
@click.option(
    "-o",
    "--output",
    type=FILE,
    metavar="FILE",
    help="Where to write.  [default: the pipeline's 'profile', else PIPELINE.profile.yaml beside it]",
)
@json_option
def profile(
    pipeline: Path,
    *,
    stages: tuple[str, ...],
    batches: tuple[int, ...] | None,
    sample: str | None,
    runs: int,
    seed: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure a pipeline's models over batch sizes and write their profile.

    Each stage's model runs in a separate process, on its device, with the same threads as when served: warm-up and
    --runs timed runs of every size up to batching.max. In --batches, a..b is every power of two between and the
    middles. Emulated stages need no profile. Stages with an ensemble, variants or a Velox model are left out, and so is
    what has no samples but their outputs; it is said which. With --stage, the profiles of the other stages stay
    unchanged.

    \b
    Example:
      spillway plan profile examples/plates/pipeline.yaml --sample examples.plates.payload:scene
      spillway plan profile pipeline.yaml --stage detect --batches 1,2,4..16 --sample recordings/monday
    """  # noqa: D301 - click's own marks
    loaded = load(pipeline, profiled=False)
    chosen = _chosen(loaded, stages)
    for name in ONE_THREAD_EACH:
        os.environ.setdefault(name, "1")  # as a served stage has it
    samples = None if sample is None else given_samples(sample, seed)
    profiler = Profiler(loaded, samples=samples, sizes=batches, effort=Effort(runs=runs), seed=seed)
    with progress_bar("measuring", sum(len(profiler.sizes(stage)) for stage in chosen)) as profiler.progress:
        others = () if stages else loaded.written.stages
        left = {each.name: f"has {each.unmeasured}" for each in others if each.unmeasured}
        found = {}
        for stage in chosen:
            try:
                found[stage.name] = profiler.profile(stage.name)
            except LeftOutError as error:
                left[stage.name] = str(error)
    if not found:
        raise UsageError(f"{pipeline}: nothing can be measured: {_listed_reasons(left)}")
    files = {}
    for stage in chosen:
        named = profile_file(loaded.written, stage)
        own = loaded.path.with_suffix(".profile.yaml") if named is None else loaded.path.parent / named
        files[stage.name] = output or own
    for file in dict.fromkeys(files.values()):
        kept, hardware = _kept(file, loaded)
        write_profiles(file, kept | {name: found[name] for name in found if files[name] == file}, hardware)
    _tell(loaded, found, files, left, as_json=as_json)


def _chosen(pipeline: Pipeline, names: tuple[str, ...]) -> list[StageSpec]:
    if not names:
        chosen = [stage for stage in pipeline.written.stages if stage.model is not None and not stage.unmeasured]
        if not chosen and not any(stage.unmeasured for stage in pipeline.written.stages):
            raise UsageError(f"{pipeline.path}: all its stages are emulated, so there is nothing to measure")
        return chosen
    chosen = [pipeline.written.stage(name) for name in dict.fromkeys(names)]
    for stage in chosen:
        if stage.unmeasured:
            raise UsageError(f"stage {stage.name!r} has {stage.unmeasured}")
        if stage.model is None:
            raise UsageError(f"stage {stage.name!r} is emulated, so there is nothing to measure")
    return chosen


def _kept(
    file: Path, pipeline: Pipeline
) -> tuple[dict[str, StageProfile], Mapping[str, Mapping[str, HardwareProfile]]]:
    """What the file says of the pipeline's stages; nothing where it cannot be read, as it is written anew then."""
    try:
        known = read_profile_file(file)
    except SpecError:
        return {}, {}
    names = [stage.name for stage in pipeline.written.stages]
    return {name: known.stages[name] for name in names if name in known.stages}, known.hardware


def _listed_reasons(left: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {why}" for name, why in left.items())


def _tell(
    pipeline: Pipeline, found: dict[str, StageProfile], files: dict[str, Path], left: dict[str, str], *, as_json: bool
) -> None:
    if as_json:
        told = {name: {"file": str(files[name]), **profile.model_dump()} for name, profile in found.items()}
        click.echo(json.dumps({"pipeline": pipeline.spec.name, "stages": told, "left_out": left}, ensure_ascii=False))
        return
    if left:
        click.echo(f"not measured: {_listed_reasons(left)}")
    table = Table("stage", "batch", "p50", "p95", "queries/s", "memory", box=None)
    for name, profile in found.items():
        for size, measured in profile.batches.items():
            times = (show_duration(float(f"{seconds:.3g}")) for seconds in (measured.p50, measured.p95))
            figures = f"{size / measured.p50:,.0f}", f"{measured.memory / (1 << 20):,.0f} MiB"
            table.add_row(name if size == 1 else "", str(size), *times, *figures)
    Console(highlight=False).print(table)
    loads = ", ".join(f"{name} {profile.load:.1f} s" for name, profile in found.items() if profile.load is not None)
    click.echo(f"a new process is ready after: {loads}")
    for file in dict.fromkeys(files.values()):
        click.echo(f"written to {file}")
    unnamed = [name for name in found if profile_file(pipeline.written, pipeline.written.stage(name)) is None]
    if unnamed:
        named = os.path.relpath(files[unnamed[0]], pipeline.path.parent)
        click.echo(f"to use it, add 'profile: {named}' to {pipeline.path}")
