"""Profiles of a pipeline's stages, each measured in a process of its own, on samples of its own or of those before it.

Where the user gives sample queries, they flow through the pipeline: the root stages are measured on them, and each
later stage on what the stages before it make of them. Otherwise a stage is measured on samples of its own (the model's
`example()`, or the declared inputs), and on the outputs of the stages before it only where it has none.
"""

from __future__ import annotations

import re
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.profiling.conditions import conditions_now
from spillway.agents.profiling.process import Job, Loaded, Measuring, NeedsSamples
from spillway.lineage.errors import UsageError
from spillway.topology.profiles import Measured, StageProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.agents.profiling.process import Effort, Parts, Share
    from spillway.topology.load import Pipeline
    from spillway.topology.spec import StageSpec


class LeftOutError(UsageError):
    """A stage cannot be measured, and others can; the text says why."""


_PART: Final = re.compile(r"(\d{1,7})(?:\.\.(\d{1,7}))?")
_MOST: Final = 1_000_000


def parse_sizes(text: str) -> tuple[int, ...]:
    """The sizes that a text names, sorted. Raises UsageError that says how to write it."""
    sizes: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= _MOST:
            raise UsageError(f"{part.strip()!r} is not a list of batch sizes; write them as in 1,2,4..64")
        sizes |= {first, last, *(size for size in _steps(last) if first < size)}
    return tuple(sorted(sizes))


def sizes_up_to(most: int, chosen: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """The sizes to measure of a stage whose batches hold at most `most`: 1, that, and what was chosen between."""
    between = _steps(most) if chosen is None else chosen
    return tuple(sorted({1, *(size for size in between if size <= most), most}))


def _steps(last: int) -> list[int]:
    steps, power = [], 1
    while power <= last:
        steps += [size for size in (power, power + power // 2) if size <= last]
        power *= 2
    return steps


class Profiler:
    """Measures stages of one pipeline. `progress` hears how many sizes are done."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        samples: Sequence[dict[str, Any]] | None,
        sizes: tuple[int, ...] | None,
        effort: Effort,
        seed: int = 0,
    ) -> None:
        """`samples`: queries for the root stages; `sizes`: batches to measure, besides 1 and each stage's largest."""
        self._pipeline = pipeline
        self._samples = samples
        self._sizes = sizes
        self._effort = effort
        self._seed = seed
        self.progress: Callable[[int], object] = bool
        self._done = 0
        self._shares: dict[str, list[Share]] = {}  # by stage, what it made of its samples
        self._loads: dict[str, float] = {}  # by stage, seconds until its process was ready

    def sizes(self, stage: StageSpec) -> tuple[int, ...]:
        return sizes_up_to(stage.batching.most, self._sizes)

    def profile(self, name: str) -> StageProfile:
        """Measure one stage. Raises UsageError where there are no samples for it, ModelError where its model fails."""
        stage = self._pipeline.written.stage(name)
        found: dict[int, Measured] = {}
        loaded = self._run(stage, self.sizes(stage), found)
        measured = conditions_now(stage, self._pipeline.path.parent, torch=loaded.uses_torch)
        if measured.device_name is None:
            measured = measured.model_copy(update={"device_name": loaded.device_name})
        return StageProfile(measured=measured, load=round(self._loads[name], 3), batches=found)

    def _run(self, stage: StageSpec, sizes: tuple[int, ...], found: dict[int, Measured]) -> Loaded:
        """Run a stage's process; where it has no samples of its own, once more on what comes from before."""
        parts = None if self._samples is None else self._parts(stage)
        while True:
            loaded, needs = Loaded(uses_torch=False, device_name=None), False
            successors = self._pipeline.graph.successors[stage.name]
            began = time.perf_counter()
            with closing(Measuring(Job(stage, successors, sizes, parts, self._seed, self._effort))) as process:
                for told in process:
                    if isinstance(told, Loaded):
                        loaded = told
                        self._loads[stage.name] = time.perf_counter() - began
                    elif isinstance(told, NeedsSamples):
                        needs = True
                    elif isinstance(told, tuple):
                        found[told[0]] = told[1]
                        self._done += 1
                        self.progress(self._done)
                    elif told is not None:
                        self._shares[stage.name] = told
            if not needs:
                return loaded
            parts = self._parts(stage)

    def _parts(self, stage: StageSpec) -> list[Parts]:
        if not stage.after:
            if self._samples is None:
                raise UsageError(
                    f"stage {stage.name!r}: it has no inputs to be measured with; declare its inputs, as in 'inputs: "
                    "{image: {dtype: uint8, shape: [40, 144]}}', give its model a method example() that returns a "
                    f"query's inputs, or name queries: 'spillway plan profile {self._pipeline.path} --sample "
                    "RECORDING, FILE or MODULE:FUNCTION'"
                )
            return [{"": sample} for sample in self._samples]
        shares = {before: self._made_by(before) for before in stage.after}
        count = min(map(len, shares.values()))
        parts = [
            {before: each[index][stage.name] for before, each in shares.items() if stage.name in each[index]}
            for index in range(count)
        ]
        most = max((len(one) for one in parts), default=0)
        if not most:
            raise UsageError(
                f"stage {stage.name!r}: none of the {count} samples is sent to it by {' or '.join(stage.after)}; give "
                "queries that reach it with --sample, or give its model an example() method"
            )
        return [one for one in parts if len(one) == most]  # what comes from all of them, where anything does

    def _made_by(self, name: str) -> list[Share]:
        stage = self._pipeline.written.stage(name)
        if name not in self._shares:
            if stage.unmeasured:
                raise LeftOutError(
                    f"comes after {name!r}, which has {stage.unmeasured}, so it has no inputs to be measured with; "
                    "give its model an example() method"
                )
            if stage.model is None:  # an emulated stage passes its input on
                passed = [next(iter(parts.values())) for parts in self._parts(stage)]
                successors = self._pipeline.graph.successors[name]
                self._shares[name] = [dict.fromkeys(successors, inputs) for inputs in passed]
            else:
                self._run(stage, (), {})
        return self._shares[name]
