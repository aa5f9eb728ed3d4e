"""Timing one model over batch sizes: warm-up, repeats, median and 95th percentile, peak memory.

What is timed is what a live stage times: `predict` alone, on lists of `Inputs`. On a GPU each run ends with the device
having done its work, whatever the model leaves under way.
"""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.models.inputs import Inputs
from lineage.errors import ModelError
from topology.profiles import Measured

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agents.models.loading import Model


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to look at one batch size: `runs` are timed, but no longer than `seconds`, unless fewer than `least`."""

    warm_up: int = 3
    runs: int = 30
    least: int = 5
    seconds: float = 3.0


class Memory:
    """The peak of what processes, or a GPU, held since the last `reset`; 0 where the system does not tell."""

    def __init__(self, device: str, pids: Sequence[int]) -> None:
        torch: Any = sys.modules.get("torch")  # a model on a GPU has imported it; for no other shall we
        self._cuda = torch.cuda if torch is not None and device.startswith("cuda") else None
        self._device = device
        self._pids = pids

    def reset(self) -> None:
        if self._cuda is not None:
            self._cuda.reset_peak_memory_stats(self._device)
            return
        for pid in self._pids:
            try:
                Path(f"/proc/{pid}/clear_refs").write_text("5")
            except OSError:
                return  # not Linux, or not allowed: the peak is then that since the process's start

    def peak(self) -> int:
        if self._cuda is not None:
            return int(self._cuda.max_memory_allocated(self._device))
        return sum(_peak(pid) for pid in self._pids)

    def settle(self) -> None:
        if self._cuda is not None:
            self._cuda.synchronize(self._device)


def _peak(pid: int) -> int:
    try:
        match = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) << 10 if match else 0


def measure(
    place: str,
    model: Model,
    samples: Sequence[Mapping[str, Any]],
    size: int,
    effort: Effort,
    memory: Memory,
    clock: Callable[[], float] = time.perf_counter,
) -> Measured:
    """Time batches of `size`, made of the samples in turn. Raises ModelError that names `place` and what went wrong."""
    memory.reset()
    began = clock()
    for _ in range(effort.warm_up):
        timed(place, model, samples, size, memory, clock)
        if clock() - began > effort.seconds:
            break  # so slow that warming up says as much as a run
    taken: list[float] = []
    began, least = clock(), min(effort.least, effort.runs)
    while len(taken) < effort.runs and (len(taken) < least or clock() - began < effort.seconds):
        taken.append(timed(place, model, samples, size, memory, clock)[0])
    p50, p95 = (float(value) for value in np.percentile(taken, [50, 95]))
    tiny = 1e-9  # a clock that did not move says no more
    return Measured(p50=max(p50, tiny), p95=max(p95, tiny), memory=memory.peak(), runs=len(taken))


def timed(
    place: str,
    model: Model,
    samples: Sequence[Mapping[str, Any]],
    size: int,
    memory: Memory,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, Sequence[Mapping[str, Any]]]:
    """Run one batch; seconds and what came of it."""
    batch = [Inputs(dict(samples[index % len(samples)]), {}, f"sample-{index}") for index in range(size)]
    began = clock()
    try:
        outputs = model.predict(batch)
        memory.settle()
    except (Exception, SystemExit) as error:
        raise ModelError(
            f"{place} failed on a batch of {size}: {type(error).__name__}: {error}; do the samples fit, and is "
            "max_batch what it can take?"
        ) from error
    seconds = clock() - began
    if not hasattr(outputs, "__len__") or len(outputs) != size:
        raise ModelError(f"{place} did not return {size} results for a batch of {size}, but {type(outputs).__name__}")
    return seconds, outputs
