"""What a simulation assumes that no trace says: hops, choices and durations; from a recording where there is one.

Told before a run, so that nobody takes its figures for more than they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from spillway.agents.whatif.traffic import read_traffic
from spillway.lineage.errors import UsageError
from spillway.topology.quantities import show_duration
from spillway.topology.sizing import HOP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spillway.topology.load import Pipeline

Choices = dict[str, "Mapping[str, float]"]


@dataclass(frozen=True)
class Assumed:
    """What to simulate with, and where each of it comes from, a sentence each. Durations in seconds."""

    hop: float
    choices: Choices
    durations: Mapping[str, Callable[[int], float]] = field(default_factory=dict)  # of stages without a profile
    told: tuple[str, ...] = ()


def assume(
    pipeline: Pipeline,
    trace: str,
    recording: Path | None,
    hop: float | None,
    choices: Mapping[str, Mapping[str, float]],
) -> Assumed:
    """By `hop` and `choices` where they are given, else by `recording`, or the trace where that is one.

    Raises UsageError where `recording` is none of this pipeline's.
    """
    source = recording
    if source is None and Path(trace).is_dir():
        source = Path(trace)
    seen = None
    told: list[str] = []
    if source is not None:
        try:
            seen = read_traffic(pipeline, str(source), seed=0, duration=None, hop=hop, choices=choices)
        except UsageError as error:
            if recording is not None:
                raise
            told.append(f"{source} does not show hops or choices: {error}")
    known: Choices = dict(choices) if seen is None else dict(seen.choices)
    took = hop if hop is not None else seen.hop if seen is not None and seen.hops is not None else None
    whence = "as told" if hop is not None else f"the median in {source}" if took is not None else "typical of two cores"
    hop = HOP_SECONDS if took is None else took
    told.append(f"each hop through Kafka takes {show_duration(float(f'{hop:.2g}'))} ({whence})")
    told.extend(
        _choice(stage.name, pipeline, known, "as told" if stage.name in choices else f"as in {source}")
        for stage in pipeline.spec.stages
        if stage.choose is not None
    )
    measured = {} if seen is None else seen.measured()
    durations = {name: each for name, each in measured.items() if name not in pipeline.durations}
    told.append("batches take exactly what profiles say, queues are unbounded, and no query fails")
    if durations:
        told.append(f"batches of {', '.join(durations)} take as long as in {source}")
    return Assumed(hop, known, durations, tuple(told))


def _choice(stage: str, pipeline: Pipeline, known: Choices, whence: str) -> str:
    if stage not in known:
        names = pipeline.graph.successors[stage]
        return (
            f"{stage} chooses one of {', '.join(names)}, each equally likely, and never several: no data shows what "
            f"it chooses (set --choose {stage}={'+'.join(names)}:.9,{names[0]}:.1, or give a --recording)"
        )
    shares = ", ".join(f"{choice or 'none'} {share:.0%}" for choice, share in known[stage].items())
    return f"{stage} chooses {shares} ({whence})"
