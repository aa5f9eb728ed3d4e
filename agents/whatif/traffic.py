"""The traffic that a study runs on: a recording, with what became of its queries, or a trace's arrivals alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from spillway.lineage.errors import SpecError, UsageError
from spillway.producers.load import traces
from spillway.producers.recording import read_recording
from spillway.producers.recording.history import History, history
from spillway.producers.report import FAILED, MISSING
from spillway.topology.load import parse
from spillway.topology.names import meant
from spillway.topology.sizing import HOP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from spillway.producers.recording import Recording
    from spillway.topology.load import Pipeline
    from spillway.topology.spec import StageSpec


# What is to be tried: policies, sizes and SLOs, each with each.
#
# A size is a change of `workers`, `fronts` or `batch` of one or more stages. Every dimension begins with what the
# pipeline file says, so each alternative stands beside the present one; several sizes of one dimension exclude each
# other. A pipeline with other sizes is the same pipeline in all else.

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
                    f"--{dimension}: stage {name} keeps a state, so it has one working member per shard; change "
                    "'shards' in the pipeline file, if its state is keyed"
                )
            if dimension == "fronts" and number > spec.partitions:
                raise UsageError(
                    f"--fronts: stage {name} cannot have {number} fronts, as each needs one of the {spec.partitions} "
                    "partitions: give it more --workers"
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
            f"stage {stage.name} has {count} workers for {fronts} fronts, and each front needs one: give it more "
            "--workers or fewer --fronts"
        )
    resized = stage.with_workers(count=count, fronts=fronts)
    return resized.with_batching(size=chosen["batch"], limit="fixed") if "batch" in chosen else resized


# How long batches take by what was recorded, for stages without a profile or in its place.
#
# For a size seen often enough, the median of its executions; for the others, the line alpha + beta * n through what was
# seen (least squares, neither below 0). One size alone gives a constant: the best guess, and an underestimate of larger
# batches, so it is told.

_ENOUGH: Final = 5  # queries in batches of a size
_LEAST: Final = 20  # queries of a stage


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of a batch of n."""

    alpha: float
    beta: float
    medians: Mapping[int, float]
    sizes: int  # how many different ones were seen

    def __call__(self, count: int) -> float:
        seconds = self.medians.get(count)
        return self.alpha + self.beta * count if seconds is None else seconds


def measured(executed: Mapping[int, list[float]]) -> Measured | None:
    """From executions by batch size, one element per query; None where too little was seen."""
    if sum(map(len, executed.values())) < _LEAST:
        return None
    medians = {size: float(np.median(seconds)) for size, seconds in sorted(executed.items())}
    weights = np.array([len(executed[size]) / size for size in medians])  # batches
    alpha, beta = _line(np.array(list(medians), np.float64), np.array(list(medians.values())), weights)
    often = {size: seconds for size, seconds in medians.items() if len(executed[size]) >= max(_ENOUGH, 2 * size)}
    return Measured(alpha, beta, often, len(medians))


def _line(sizes: np.ndarray, seconds: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    n, d = np.average(sizes, weights=weights), np.average(seconds, weights=weights)
    spread = np.average((sizes - n) ** 2, weights=weights)
    beta = np.average((sizes - n) * (seconds - d), weights=weights) / spread if spread > 0 else 0.0
    beta = max(0.0, float(beta))
    alpha = float(d - beta * n)
    if alpha < 0:  # a line through the origin
        return 0.0, float(np.average(sizes * seconds, weights=weights) / np.average(sizes**2, weights=weights))
    return alpha, beta


def filled(at: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Replace what is NaN in `values`, of things that happened `at` (sorted), by what is nearest; None where all is."""
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return None
    after = np.minimum(np.searchsorted(at[known], at), len(known) - 1)
    before = np.maximum(after - 1, 0)
    nearer = np.abs(at[known[before]] - at) <= np.abs(at[known[after]] - at)
    nearest = values[known[np.where(nearer, before, after)]]
    return np.where(np.isnan(values), nearest, values)


_USUAL_HOP: Final = (
    f"no data shows how long a hop through Kafka takes: {1000 * HOP_SECONDS:g} ms each, typical of two cores (--hop)"
)
_FEW: Final = 200  # recorded outcomes, below which percentiles say little
_SLOW_HOP: Final = 5.0  # ms


@dataclass(frozen=True, slots=True)
class Traffic:
    """Arrivals, one element per query, and what a recording tells beside them. Durations in seconds."""

    name: str
    due: NDArray[np.float64]
    budget: NDArray[np.float64]
    partition: NDArray[np.int64] | None = None
    history: History | None = None
    recorded: Pipeline | None = None  # as it was when it was recorded, with the policies that were served
    choices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    hop: float = 0.0  # of the median query
    hops: NDArray[np.float64] | None = None  # of each
    period: float | None = None  # of the policies' synchronisation, as it was served; None: not known
    notes: tuple[str, ...] = ()

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Which queries the figures count: with a recorded outcome that is no failure; of a trace, all."""
        if self.history is None:
            return np.ones(len(self.due), np.bool_)
        return np.asarray((self.history.kind != MISSING) & (self.history.kind != FAILED))

    def measured(self) -> dict[str, Callable[[int], float]]:
        if self.history is None:
            return {}
        found = {name: measured(stage.executed) for name, stage in self.history.stages.items()}
        return {name: durations for name, durations in found.items() if durations is not None}


def read_traffic(
    pipeline: Pipeline,
    source: str,
    *,
    seed: int,
    duration: float | None,
    hop: float | None,
    choices: Mapping[str, Mapping[str, float]] | None = None,
) -> Traffic:
    """Read a recording's directory, or a trace.

    `hop` stands in for what the recording shows of one, `choices` for how often it shows stages to choose what.
    Raises `UsageError` for what cannot be read, or is another pipeline's.
    """
    if Path(source).is_dir():
        return _of_recording(pipeline, source, duration, hop, choices or {})
    due = traces.arrivals(source, seed=seed, duration=duration)
    notes = ["a trace holds no outcomes: nothing shows how far to trust these predictions (use a recording)"]
    notes += [_USUAL_HOP] if hop is None else []
    told = dict(choices or {})
    choosers = [stage.name for stage in pipeline.spec.stages if stage.choose is not None]
    notes += [_equally(name) for name in choosers if name not in told]
    budget = np.full(len(due), pipeline.spec.slo)
    return Traffic(source, due, budget, choices=told, hop=HOP_SECONDS if hop is None else hop, notes=tuple(notes))


def _of_recording(
    pipeline: Pipeline,
    name: str,
    duration: float | None,
    hop: float | None,
    told: Mapping[str, Mapping[str, float]],
) -> Traffic:
    torn: list[str] = []
    recording = read_recording(Path(name), torn.append)
    about, spec = recording.about, pipeline.spec
    if about.pipeline != spec.name:
        raise UsageError(f"{name} is a recording of pipeline {about.pipeline!r}, and {pipeline.path} is {spec.name!r}")
    recorded = _as_recorded(pipeline, recording)
    graph = recorded.graph
    before = {stage: tuple(graph.predecessors[stage]) for stage in graph.order}
    past = history(recording, before, spec.limits.merged())
    if duration is not None:
        past = past.until(duration)
    choices, notes = _choices(pipeline, past, told)
    hops = filled(past.due, past.hop) if hop is None else None
    if recorded.digest != pipeline.digest:
        notes.append(
            f"{pipeline.path} has changed since the recording: the recorded configuration is simulated from the "
            "recorded file, all others from the current file"
        )
    notes += _scaled(recorded, pipeline)
    return Traffic(
        name=name,
        due=past.due,
        budget=np.where(np.isnan(past.budget), spec.slo, past.budget),
        partition=past.partition if past.partition.max() < spec.partitions else None,
        history=past,
        recorded=recorded,
        choices=choices,
        hop=hop if hop is not None else HOP_SECONDS if hops is None else float(np.median(hops)),
        hops=hops,
        period=about.period,
        notes=(
            *torn,
            *_doubts(past, name),
            *([_USUAL_HOP] if hop is None and hops is None else ()),
            *notes,
        ),
    )


def _scaled(recorded: Pipeline, pipeline: Pipeline) -> list[str]:
    """What whoever had scaled the pipeline should know."""
    file = {stage.name: stage.worker_count for stage in pipeline.spec.stages}
    other = [
        f"{stage.name} {stage.worker_count} (the file: {file[stage.name]})"
        for stage in recorded.spec.stages
        if file.get(stage.name, stage.worker_count) != stage.worker_count
    ]
    return [f"workers when it was recorded: {', '.join(other)}; 'as the file says' has the file's"] if other else []


def _as_recorded(pipeline: Pipeline, recording: Recording) -> Pipeline:
    about = recording.about
    text = about.spec.replace("\t", " ") if pipeline.path.suffix == ".json" else about.spec
    try:
        then = _parsed(text, pipeline)
    except SpecError as error:
        raise UsageError(f"the pipeline in {recording.directory} cannot be read: {error}") from error
    known = then.graph.order
    sizes = {"fronts": about.fronts, "workers": about.workers}
    then = resized(then, {what: {stage: n for stage, n in by.items() if stage in known} for what, by in sizes.items()})
    stages = tuple(
        stage.model_copy(update={"policy": about.policies.get(stage.name, stage.policy)}) for stage in then.spec.stages
    )
    return replace(then, spec=then.spec.model_copy(update={"stages": stages}))


def _parsed(text: str, pipeline: Pipeline) -> Pipeline:
    """The pipeline of a recording; without its profiles where these are gone, as the recording has durations too."""
    try:
        return parse(text, pipeline.path)
    except SpecError:
        return parse(text, pipeline.path, profiled=False)


def _choices(
    pipeline: Pipeline, past: History, told: Mapping[str, Mapping[str, float]]
) -> tuple[dict[str, Mapping[str, float]], list[str]]:
    """How likely each choice is, as `told`, else as recorded; a chooser that was never seen to choose has a note."""
    found: dict[str, Mapping[str, float]] = dict(told)
    notes = []
    for stage in pipeline.spec.stages:
        if stage.choose is None or stage.name in found:
            continue
        known = set(pipeline.graph.successors[stage.name])
        seen = {
            choice: count
            for choice, count in past.choices.get(stage.name, {}).items()
            if known.issuperset(name for name in choice.split("+") if name)
        }
        if seen:
            total = sum(seen.values())
            found[stage.name] = {choice: count / total for choice, count in sorted(seen.items())}
        else:
            notes.append(_equally(stage.name))
    return found, notes


def _doubts(past: History, name: str) -> list[str]:
    missing = int((past.kind == MISSING).sum())
    failed = int((past.kind == FAILED).sum())
    notes = []
    if missing:
        notes.append(
            f"{missing} queries have no recorded outcome (the recording ended first): they are simulated but "
            "not counted"
        )
    if failed:
        notes.append(f"{failed} queries failed, which a simulation cannot predict: they are simulated but not counted")
    shown = past.hop[~np.isnan(past.hop)]
    if len(shown):
        usual, slow = (1000 * float(each) for each in np.quantile(shown, (0.5, 0.9)))
        if slow > 2 * usual + _SLOW_HOP:
            notes.append(
                f"a hop took {usual:.1f} ms at the median and {slow:.1f} ms or more for a tenth of the predictions: "
                "the machine was overloaded, which slows more than hops and affects each policy differently"
            )
    if past.unreadable:
        notes.append(f"{past.unreadable} recorded messages cannot be read and are left out")
    counted = len(past.kind) - missing - failed
    if not counted and failed:
        raise UsageError(f"all {failed} outcomes in {name} are failures: see 'spillway dead list', and record again")
    if not counted:
        raise UsageError(f"{name} holds no outcome of its queries: record for longer, or use a trace")
    if counted < _FEW:
        notes.append(f"only {counted} outcomes were recorded: percentiles and small differences say little")
    return notes


def _equally(stage: str) -> str:
    return f"no data shows how often {stage} chooses each successor: all are taken as equally likely"
