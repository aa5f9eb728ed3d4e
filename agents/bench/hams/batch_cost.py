"""What it costs a stateful stage to log its batches: beyond a bare stage, in CPU time of the event loop's thread.

A core takes a batch of messages that came from a stateful stage, hands it out, takes the results, sends them and learns
that the broker has them; the stateful one also records the batch, copies, writes and seals its version, and learns that
it is durable. Both encode what they send; the model, the broker and the copy of the state are left out. Beside the
loop's, the manifest is described, digested and encoded, which the writer's thread does, under the same interpreter's
lock; the state that it tells of has 13 MB (51 chunks), whose digests are made before and not counted.

Headers are counted in bytes: what the marks add to one message (`lineage.hops.growth`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.bench.pard.output import Table, median_spread
from agents.core.actions import Ok
from agents.core.batching import Batcher
from agents.core.policies import make
from agents.core.policy import StageView
from agents.core.request import Delivery
from agents.core.stage import StageCore
from agents.core.stateful_stage import StatefulCore
from checkpoint.capture import Capture
from checkpoint.chunks import ChunkLog
from checkpoint.logs import Logs
from checkpoint.manifests import describe, seal
from checkpoint.orders import Copy, Write
from checkpoint.reign import Reign
from lineage import hops
from lineage.hops import Hop
from lineage.marks import INITIAL, Mark, Version, merged
from lineage.replication import Base, Fence, InputPlace, Manifest
from lineage.values.replication import encode
from topology.routing import Graph
from topology.spec import PipelineSpec, StageSpec

if TYPE_CHECKING:
    from agents.bench.hams.setting import Setting

SIZES = (1, 16, 64, 128)
PAPER_MS = 2.1  # HAMS, section VI-C: at most, a batch
_PARTITIONS, _ROUNDS, _WARM = 4, 300, 20
_STATE_BYTES = 13_400_000
_CHAIN = ((1, INITIAL),)
_BEFORE, _OWN, _BEHIND = "transcribe", "sentiment", "combine"
_NOW, _FAR = 1_000.0, 1e9


def _graph() -> Graph:
    stages = (
        StageSpec(name=_BEFORE, model="m:M", state="shared"),
        StageSpec(name=_OWN, model="m:M", state="shared", after=(_BEFORE,)),
        StageSpec(name=_BEHIND, model="m:M", after=(_OWN,)),
    )
    return Graph(PipelineSpec(name="p", slo=60.0, partitions=_PARTITIONS, stages=stages))


def _batcher(size: int) -> Batcher:
    return Batcher(make("naive", StageView(_OWN)), max_batch=size, delay=_FAR)


class Bare:
    """The stage without a state, behind one without."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.core: Any = self._core()
        self._offsets = [0] * _PARTITIONS
        self._sent = 0

    def _core(self) -> Any:
        core = StageCore(_graph(), _OWN, _batcher(self.size))
        for partition in range(_PARTITIONS):
            core.assign(partition, 0)
        return core

    def deliveries(self, marks: tuple[Mark, ...] = ()) -> list[Delivery]:
        made = []
        for _ in range(self.size):
            partition = self._sent % _PARTITIONS
            offset = self._offsets[partition]
            self._offsets[partition] += 1
            hop = Hop(_BEFORE, 1, partition, offset, offset, marks)
            made.append(Delivery(f"{self._sent:026}", partition, offset, _NOW, _NOW + 60, _BEFORE, hop, appended=_NOW))
            self._sent += 1
        return made

    def round(self) -> dict[str, float]:
        """One batch; seconds of CPU and of wall that it took."""
        deliveries = self.deliveries()
        watch = _Watch()
        core = self.core
        for delivery in deliveries:
            core.deliver(_NOW, delivery)
        (batch,) = core.take_runs()
        core.complete(_NOW, batch, [_RESULT] * self.size, 0.01)
        self.send()
        self.commit()
        return watch.taken("loop")

    def send(self) -> None:
        """Encode and send what there is, and learn that the broker has it."""
        emits = self.core.take_emits()
        for emit in emits:
            hops.encode((emit.hop,))
        self.core.acked_all(emits)

    def commit(self) -> None:
        for partition, (offset, _) in self.core.commits().items():
            self.core.committed(partition, offset)


_RESULT = Ok({_BEHIND: b"result"})


class _Watch:
    def __init__(self) -> None:
        self._cpu, self._wall = time.thread_time(), time.perf_counter()

    def taken(self, name: str) -> dict[str, float]:
        return {f"{name}_cpu": time.thread_time() - self._cpu, f"{name}_wall": time.perf_counter() - self._wall}


class Logged(Bare):
    """The stateful stage behind a stateful stage, whose versions are durable before its own."""

    def __init__(self, size: int) -> None:
        self._logs = Logs([(_BEFORE, 0), (_OWN, 0)])
        for place in ((_BEFORE, 0), (_OWN, 0)):
            self._logs.take(place, Fence(1, "m"))
            self._logs.take(place, Base(1, "m", INITIAL, _CHAIN))
            self._logs.caught_up(place)
        super().__init__(size)
        state = {f"w{number}": np.full(_STATE_BYTES // 4 // 25, number, np.float32) for number in range(25)}
        self._captured = Capture().take(state)
        self._chunks = ChunkLog(1)
        self._n = 0

    def _core(self) -> Any:
        reign: Reign[Any] = Reign((_OWN, 0), 1, INITIAL)
        core = StatefulCore(_graph(), _OWN, _batcher(self.size), reign=reign, logs=self._logs)
        for partition in range(_PARTITIONS):
            core.assign_place(InputPlace(partition, 0))
        return core

    def round(self) -> dict[str, float]:
        core, logs = self.core, self._logs
        self._n += 1
        upstream = Version(1, self._n)
        deliveries = self.deliveries((Mark(_BEFORE, 0, upstream),))
        watch = _Watch()
        for delivery in deliveries:
            core.deliver(_NOW, delivery)
        (batch,) = core.take_runs()
        core.computed(_NOW, batch, [_RESULT] * self.size, 0.01, changes=True)
        self.send()
        core.take_updates()
        core.updated(_NOW, 0.001)
        (copy,) = (order for order in core.take_orders() if isinstance(order, Copy))
        core.copied(_NOW, copy.version, self._captured)
        (write,) = (order for order in core.take_orders() if isinstance(order, Write))
        until_written = watch.taken("loop")
        writing = _Watch()
        sealed = self._seal(write)
        manifest = writing.taken("manifest")
        watch = _Watch()
        core.completed(_NOW, sealed.version)
        logs.take((_BEFORE, 0), Manifest(upstream, _CHAIN, (), "m"))
        logs.take((_OWN, 0), sealed)
        core.durability_changed(_NOW)
        core.take_orders()
        self.commit()
        after = watch.taken("loop")
        return {name: until_written[name] + after[name] for name in after} | manifest

    def _seal(self, write: Write[Any]) -> Manifest:
        chunks = self._chunks
        writing = chunks.write(write.version, self._captured)
        for _ in writing.records():
            pass
        contents = describe(self._captured, writing, batches=write.batches, inputs=write.inputs)
        sealed, _ = seal(Manifest(write.version, _CHAIN, write.requires, "m"), contents, writing)
        encode(sealed)
        chunks.acknowledged(writing)
        chunks.durable(write.version)
        return sealed


def measure_logging(setting: Setting) -> dict[str, Any]:
    rows = []
    for repeat in range(setting.repeats):
        for size in SIZES:
            bare, logged = Bare(size), Logged(size)
            rounds = [{"bare": bare.round(), "logged": logged.round()} for _ in range(_WARM + _ROUNDS)][_WARM:]
            figures = _figures(rounds)
            setting.say(f"{repeat + 1}/{setting.repeats} batch {size}: {figures['extra_cpu']['p50']:.3f} ms of CPU")
            rows.append({"repeat": repeat, "batch": size, **figures})
    return {"rounds": _ROUNDS, "rows": rows, "headers": _headers()}


def _figures(rounds: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Milliseconds a batch. `extra`: what logging costs on the loop and for the manifest beyond the bare stage."""
    found = {}
    for clock in ("cpu", "wall"):
        bare = np.array([1e3 * each["bare"][f"loop_{clock}"] for each in rounds])
        loop = np.array([1e3 * each["logged"][f"loop_{clock}"] for each in rounds])
        manifest = np.array([1e3 * each["logged"][f"manifest_{clock}"] for each in rounds])
        figures = {"bare": bare, "loop": loop, "manifest": manifest, "extra": loop + manifest - float(np.median(bare))}
        for name, values in figures.items():
            told = {"p50": float(np.median(values)), "p99": float(np.quantile(values, 0.99))}
            found[f"{name}_{clock}"] = {key: round(value, 4) for key, value in told.items()}
    return found


def _headers() -> list[dict[str, Any]]:
    rows = []
    for stages in (1, 2, 3):
        names = [f"stage-{number}" for number in range(stages)]
        for n in (100, 10_000_000):
            marks = [Mark(name, 0, Version(3, n)) for name in names]
            own = Hop(names[-1], 3, 2, n, n, (marks[-1],))
            behind = Hop("combine", 3, 2, n, n, merged([(mark,) for mark in marks]))
            rows.append(
                {
                    "stateful_stages": stages,
                    "n": n,
                    "in_a_row_bytes": hops.growth((own,)),
                    "joined_bytes": hops.growth((behind,)),
                    "header_bytes": len(hops.encode((own,))) - hops.growth((own,)),
                }
            )
    return rows


def tables(result: dict[str, Any]) -> list[Table]:
    """CPU and wall of a batch, and the bytes of the headers."""
    sizes = list(dict.fromkeys(row["batch"] for row in result["rows"]))
    costs = []
    for size in sizes:
        mine = [row for row in result["rows"] if row["batch"] == size]
        costs.append(
            [
                str(size),
                *(_spread(mine, f"{name}_cpu", "p50") for name in ("bare", "loop", "manifest", "extra")),
                _spread(mine, "extra_cpu", "p99"),
                _spread(mine, "extra_wall", "p50"),
                _spread(mine, "extra_wall", "p99"),
            ]
        )
    headers = [
        [
            str(row["stateful_stages"]), f"{row['n']:,}", str(row["header_bytes"]),
            f"+{row['in_a_row_bytes']}", f"+{row['joined_bytes']}",
        ]
        for row in result["headers"]
    ]  # fmt: skip
    return [
        Table(
            "What logging costs a batch, in ms: median of the repeats (least to most)",
            (
                "batch", "bare stage, CPU", "stateful stage, CPU", "its manifest, CPU", "more than bare, CPU p50",
                "CPU p99", "wall p50", "wall p99",
            ),
            costs,
            (
                f"{result['rounds']} batches a repeat, without a broker or a model; the paper: {PAPER_MS} ms a batch.",
                "Wall counts what else the machine does.",
            ),
        ),
        Table(
            "Bytes that marks add to a message's `spillway-hops`",
            ("stateful stages", "at version", "header without", "one after the other", "side by side, then joined"),
            headers,
            ("Of stages in a row only the last one's mark travels: its manifest names those before.",),
        ),
    ]  # fmt: skip


def _spread(rows: list[dict[str, Any]], what: str, quantile: str) -> str:
    values = [row[what][quantile] for row in rows]
    return median_spread(values, "{:.3f}")
