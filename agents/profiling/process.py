"""One stage's measurement in a process of its own, so that models share no memory, threads or imports.

The process loads the model as a stage does, finds samples, measures each size, and last tells what the stage makes of
the samples, which the next stages are measured on. What it tells, in this order: `Loaded`; then either `NeedsSamples`,
and nothing more, or a `(size, Measured)` for each size, and the shares of each successor, by sample (None where they
are not wanted). An error at any point is a text, and the last word.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.agents.live.stage.batch_work import UserFunctions
from spillway.agents.live.stage.build import load_copy
from spillway.agents.models.contract import given, text_of
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.loading import TORCH_THREADS
from spillway.agents.workers.single import SingleWorker
from spillway.lineage.errors import ModelError, SpillwayError, WireError
from spillway.producers.load.payloads import example_of
from spillway.topology.profiles import Measured
from spillway.topology.spec import InputSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

    from spillway.agents.models.loading import Model
    from spillway.topology.spec import StageSpec

    Parts = dict[str, dict[str, Any]]
    Share = dict[str, dict[str, Any]]
    Sample = dict[str, Any]
    from collections.abc import Callable


# Timing one model over batch sizes: warm-up, repeats, median and 95th percentile, peak memory.
#
# What is timed is what a live stage times: `predict` alone, on lists of `Inputs`. On a GPU each run ends with the
# device having done its work, whatever the model leaves under way.


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
    batch = [Inputs(given(samples[index % len(samples)]), {}, f"sample-{index}") for index in range(size)]
    began = clock()
    try:
        outputs = model.predict(batch)
        memory.settle()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ModelError(
            f"{place} failed on a batch of {size}: {type(error).__name__}: {text_of(error)}; check that the samples "
            "fit the model and that it can take batches of batching.max"
        ) from error
    seconds = clock() - began
    if not hasattr(outputs, "__len__") or len(outputs) != size:
        raise ModelError(f"{place} did not return {size} results for a batch of {size}, but {type(outputs).__name__}")
    return seconds, outputs


SAMPLES: Final = 64  # different queries; larger batches repeat them


def own_samples(spec: StageSpec, model: Any, seed: int) -> list[Sample] | None:
    """What the model's `example()` gives, else samples after the declared inputs; None where there is neither."""
    example = getattr(model, "example", None)
    if callable(example):
        return _example(spec, example)
    inputs = spec.inputs or getattr(model, "input_signature", None)
    if not inputs:
        return None
    declared = {name: InputSpec.model_validate(one) if isinstance(one, dict) else one for name, one in inputs.items()}
    rng = np.random.default_rng(seed)
    return [{name: example_of(one, rng) for name, one in declared.items()} for _ in range(SAMPLES)]


def _example(spec: StageSpec, example: Any) -> list[Sample]:
    place = f"stage {spec.name!r}: example() of {spec.model!r}"
    try:
        made = example()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ModelError(f"{place} failed: {type(error).__name__}: {text_of(error)}") from error
    found = [made] if isinstance(made, Mapping) else list(made) if isinstance(made, (list, tuple)) else []
    if not found or not all(isinstance(one, Mapping) for one in found):
        raise ModelError(f"{place} must return a mapping of inputs, or a list of them, not {made!r:.60}")
    return [dict(one) for one in found]


@dataclass(frozen=True, slots=True)
class Job:
    """What a process is to do."""

    spec: StageSpec
    successors: tuple[str, ...]
    sizes: tuple[int, ...]  # none: only the outputs are wanted
    parts: Sequence[Parts] | None  # what arrives at the stage, by sample; None: it is to find its own samples
    seed: int
    effort: Effort


@dataclass(frozen=True, slots=True)
class Loaded:
    """The model is there."""

    uses_torch: bool
    device_name: str | None  # of a GPU, as torch tells it


@dataclass(frozen=True, slots=True)
class NeedsSamples:
    """The stage has no samples of its own."""


class Measuring:
    """Runs a `Job` in a spawned process; iterating gives what it tells. Close it to end the process."""

    def __init__(self, job: Job) -> None:
        self._place = f"stage {job.spec.name!r}: model {job.spec.model!r}"
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, job), name=f"profile-{job.spec.name}")
        self._process.start()
        theirs.close()

    def __iter__(self) -> Iterator[Any]:
        """What the process tells, until it ends. Raises ModelError where it cannot go on."""
        while True:
            try:
                told = self._pipe.recv()
            except EOFError:
                self._process.join()
                if self._process.exitcode:
                    code = self._process.exitcode
                    raise ModelError(
                        f"{self._place}: its process died during the measurement (exit code {code})"
                    ) from None
                return
            if isinstance(told, str):
                raise ModelError(told)
            yield told

    def close(self) -> None:
        self._pipe.close()
        self._process.join(1.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(pipe: Connection, job: Job) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; a terminal's Ctrl-C reaches both
    try:
        for told in _tell(job):
            _send(pipe, told)
    except (BrokenPipeError, ConnectionResetError):
        return  # nobody listens any more
    except SpillwayError as error:
        pipe.send(str(error))


def _send(pipe: Connection, told: Any) -> None:
    try:
        pipe.send(told)
    except (pickle.PicklingError, TypeError, AttributeError):
        pipe.send(None)  # outputs that cannot leave the process are no samples for the next stages


def _tell(job: Job) -> Iterator[Any]:
    spec = job.spec
    place = f"stage {spec.name!r}: model {spec.model!r}"
    model = _load(spec)
    try:
        yield _loaded(spec, model)
        functions = UserFunctions(spec, job.successors)
        samples = own_samples(spec, model, job.seed) if job.parts is None else _joined(place, functions, job)
        if samples is None:
            yield NeedsSamples()
            return
        memory = Memory(spec.workers.device, [model.pid if isinstance(model, SingleWorker) else os.getpid()])
        for size in job.sizes:
            yield size, measure(place, model, samples, size, job.effort, memory)
        yield _shares(place, model, samples, functions, memory) if job.successors else None
    finally:
        if isinstance(model, SingleWorker):
            model.close()


def _loaded(spec: StageSpec, model: Model) -> Loaded:
    if isinstance(model, SingleWorker):
        return Loaded(model.uses_torch, None)
    torch: Any = sys.modules.get("torch")
    on_gpu = torch is not None and spec.workers.device != "cpu"
    return Loaded(torch is not None, torch.cuda.get_device_name(spec.workers.device) if on_gpu else None)


def _load(spec: StageSpec) -> Model:
    if spec.model is None:
        raise ModelError(f"stage {spec.name!r} is emulated: there is no model to measure")
    return SingleWorker(spec, TORCH_THREADS) if spec.workers.where == "process" else load_copy(spec, TORCH_THREADS)


def _joined(place: str, functions: UserFunctions, job: Job) -> list[dict[str, Any]]:
    try:
        if len(job.spec.after) > 1:
            return [functions.join(parts) for parts in job.parts or ()]
        return [dict(one) for parts in job.parts or () for one in parts.values()]
    except WireError as error:
        raise ModelError(f"{place}: its samples cannot be joined: {error}") from error


def _shares(
    place: str, model: Model, samples: Sequence[Mapping[str, Any]], functions: UserFunctions, memory: Memory
) -> list[Share]:
    """What each successor is sent for each sample; the model runs on one at a time, which any model can."""
    shares = []
    for sample in samples:
        output = timed(place, model, [sample], 1, memory)[1][0]
        try:
            _, routed = functions.route(functions.finish(dict(output)))
        except (WireError, TypeError, ValueError) as error:
            raise ModelError(f"{place}: its answer to a sample has no destination: {error}") from error
        shares.append({target: outputs for target, outputs in routed.items() if target is not None})
    return shares
