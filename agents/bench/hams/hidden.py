"""What of a large state's replication can be hidden behind its computing: OL(V), a state of 119 MB, on this machine.

Measured: what a batch and a version cost (compute, update, copy, hash, write to a broker), and a stage that does them
at once, as NSPB does: a copy begins when nothing is being written and no update runs, the next update waits for it and
for nothing else, and versions made meanwhile coalesce. With coalescing off every version is copied and written, so an
update waits also for the version before it to be written. Model, capture, `StateWriter` and broker are the real ones;
the stage around them is not there: nobody sends queries. Torch has one thread.

Computed, not measured: what the same takes with the paper's state, pace and network, from the costs measured here.
"""

from __future__ import annotations

import statistics
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from agents.bench.hams.paper_hardware import computed_table
from agents.bench.hams.queries import in_batches
from agents.bench.hams.services import SERVICES
from agents.bench.hams.shard import Primary, make_topics
from agents.bench.pard.output import Table, median_spread
from agents.broker.folder import DataFolder
from agents.models.declared import load_declared
from agents.models.stateful import Machine
from agents.models.torch_threads import limit_torch_threads
from checkpoint.blocks import digest_of
from lineage.errors import SpillwayError
from topology.load import load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    import psutil

    from agents.bench.hams.setting import Setting
    from agents.models.inputs import Inputs
    from checkpoint.capture import Captured

BATCH = 64
_BATCHES, _COSTS = 10, 5  # of a run; of which costs are the medians
_WITHIN = 120.0
BARE, ON, OFF = "bare", "coalescing on", "coalescing off"


class Overlap:
    """Copies and writes a machine's versions beside it. Use as a context; its end waits until all is written."""

    def __init__(self, machine: Machine, primary: Primary, *, every: bool) -> None:
        self._machine = machine
        self._primary = primary
        self._every = every
        self._changed = threading.Condition()
        self._n = self._copied = 0
        self._updating = self._copying = self._writing = self._closed = False
        self._failure: BaseException | None = None
        self.versions = 0
        self.waited = 0.0  # seconds that updates waited
        self._thread = threading.Thread(target=self._run, name="copies", daemon=True)

    def __enter__(self) -> Overlap:  # noqa: PYI034 - nobody derives from it
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(_WITHIN)

    def update(self) -> None:
        """Let the batch that was computed change the state, when that may be."""
        began = time.monotonic()
        with self._changed:
            free = self._changed.wait_for(self._may_update, _WITHIN)
            if self._failure is not None or not free:
                raise SpillwayError(f"versions were not written: {self._failure or 'in time'}")
            self.waited += time.monotonic() - began
            self._updating = True
        self._machine.update()
        with self._changed:
            self._updating = False
            self._n += 1
            self._changed.notify_all()

    def _may_update(self) -> bool:
        return self._failure is not None or (not self._copying and (not self._every or self._copied == self._n))

    def _run(self) -> None:
        before = None
        try:
            while self._next():
                captured = self._primary.capture.take(self._machine.state)
                with self._changed:
                    self._copying = False
                    self._changed.notify_all()
                self._primary.write_captured(captured)
                self.versions += 1
                if before is not None:
                    before.release()
                before = captured
        except SpillwayError as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()
        finally:
            if before is not None:
                before.release()

    def _next(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: (self._n > self._copied and not self._updating) or self._closed)
            if self._n == self._copied:
                return False
            self._copying, self._copied = True, self._n
            return True


def measure_large(setting: Setting) -> dict[str, Any]:
    service = SERVICES["ol-large"]
    (stage,) = load(service.path).spec.stages
    assert stage.model is not None  # as the file has it
    machine = Machine(stage.name, load_declared(stage.name, stage.model, stage.arguments, "cpu", "shared"))
    limit_torch_threads(1)
    queries = list(in_batches(service, _BATCHES, BATCH))
    pipeline = f"large-{setting.run()}"
    make_topics(setting.cluster, pipeline)
    rows = []
    with Primary(setting.cluster, pipeline) as primary:
        costs = _costs(setting, machine, primary, queries[:_COSTS])
        setting.say(f"costs of a version: {costs}")
        for repeat in range(setting.repeats):
            for mode in (BARE, ON, OFF):
                row = {"repeat": repeat, "mode": mode} | _run(machine, primary, queries, mode)
                setting.say(f"{repeat + 1}/{setting.repeats} {mode}: {row['batch_ms']} ms a batch")
                rows.append(row)
    return {"batch": BATCH, "batches": _BATCHES, "costs": costs, "rows": rows}


def _costs(
    setting: Setting, machine: Machine, primary: Primary, queries: Sequence[Sequence[Inputs]]
) -> dict[str, float]:
    """Milliseconds of each step on its own, one after the other; CPU of this thread, and of the broker for writing."""
    found: dict[str, list[float]] = {}
    broker = _broker(setting)

    def clock(name: str, once: Callable[[], Any], cpu: Callable[[], float]) -> Any:
        wall, before = time.monotonic(), cpu()
        result = once()
        found.setdefault(f"{name}_wall_ms", []).append(1e3 * (time.monotonic() - wall))
        found.setdefault(f"{name}_cpu_ms", []).append(1e3 * (cpu() - before))
        return result

    held = None
    for batch in queries:
        clock("compute", partial(machine.compute, batch), time.thread_time)
        clock("update", machine.update, time.thread_time)
        captured: Captured = clock("copy", lambda: primary.capture.take(machine.state), time.thread_time)
        clock("hash", partial(_hash, captured), time.thread_time)
        served = sum(broker.cpu_times()[:2])
        clock("write", partial(primary.write_captured, captured), time.process_time)
        found.setdefault("broker_cpu_ms", []).append(1e3 * (sum(broker.cpu_times()[:2]) - served))
        if held is not None:
            held.release()
        held = captured
    if held is not None:
        found["state_mb"] = [held.nbytes / 1e6]
        held.release()
    return {name: round(statistics.median(values[-_COSTS + 1 :]), 2) for name, values in found.items()}


def _hash(captured: Captured) -> None:
    for block in captured.blocks:
        digest_of(block.data)


def _broker(setting: Setting) -> psutil.Process:
    running = DataFolder(setting.folder / "kafka").running()
    process = running.process() if running is not None else None
    if process is None:
        raise SpillwayError("the broker of this comparison is not there any more; see its log")
    return process


def _run(machine: Machine, primary: Primary, queries: Sequence[Sequence[Inputs]], mode: str) -> dict[str, Any]:
    began, cpu = time.monotonic(), time.process_time()
    if mode == BARE:
        for batch in queries:
            machine.compute(batch)
            machine.update()
        took, waited, versions = time.monotonic() - began, 0.0, 0
    else:
        with Overlap(machine, primary, every=mode == OFF) as overlap:
            for batch in queries:
                machine.compute(batch)
                overlap.update()
            took, waited, versions = time.monotonic() - began, overlap.waited, overlap.versions
        versions = overlap.versions
    count = len(queries)
    return {
        "batch_ms": round(1e3 * took / count, 1),
        "waited_ms": round(1e3 * waited / count, 1),
        "cpu_ms": round(1e3 * (time.process_time() - cpu) / count, 1),
        "versions": versions,
        "written_after_ms": round(1e3 * (time.monotonic() - began - took), 1),
    }


def tables(result: dict[str, Any]) -> list[Table]:
    costs = result["costs"]
    steps = [
        [name, f"{costs[f'{name}_wall_ms']:.0f}", f"{costs[f'{name}_cpu_ms']:.0f}", _rate(costs, name)]
        for name in ("compute", "update", "copy", "hash", "write")
    ]
    runs = []
    for mode in (BARE, ON, OFF):
        mine = [row for row in result["rows"] if row["mode"] == mode]
        over = [
            100 * (row["batch_ms"] / base["batch_ms"] - 1)
            for row in mine
            for base in result["rows"]
            if base["mode"] == BARE and base["repeat"] == row["repeat"]
        ]
        runs.append(
            [
                mode,
                median_spread([row["batch_ms"] for row in mine], "{:.0f}"),
                "-" if mode == BARE else median_spread(over, "{:+.0f} %"),
                median_spread([row["waited_ms"] for row in mine], "{:.0f}"),
                median_spread([row["cpu_ms"] for row in mine], "{:.0f}"),
                median_spread([row["versions"] for row in mine], "{:.0f}"),
                median_spread([row["written_after_ms"] for row in mine], "{:.0f}"),
            ]
        )
    return [
        Table(
            f"OL(V), {costs['state_mb']:.0f} MB: a batch of {result['batch']} and its version, step by step (measured)",
            ("step", "wall, ms", "CPU, ms", "MB of state a second"),
            steps,
            (
                f"The broker's own CPU beside it: {costs['broker_cpu_ms']:.0f} ms a version.",
                "Writing has hashing in it again; its CPU is that of the whole process.",
            ),
        ),
        Table(
            f"The same at once, {result['batches']} batches a run: median (least to most) (measured)",
            (
                "versions", "a batch, ms", "over bare", "of which updates waited, ms", "CPU of the process a batch, ms",
                "versions written", "until the last is durable, ms",
            ),
            runs,
        ),
        computed_table(costs),
    ]  # fmt: skip


def _rate(costs: dict[str, float], name: str) -> str:
    return "-" if name in ("compute", "update") else f"{1e3 * costs['state_mb'] / costs[f'{name}_wall_ms']:,.0f}"
