"""What a version of each service's states writes: its changed chunks and pages against the whole state; no broker.

The services' own models compute and update on their real queries, in batches of 64, in one process; what a stage hands
on is what the next one gets. Keyed services run twice: with the eight streams that a batch has, and with 256, of which
each batch has eight in turn. Each version goes through `Capture`, `ChunkLog` and `seal`, as a primary's does, and each
is durable before the next. So every batch is a version: under load versions coalesce, and then fewer bytes are written
for as many batches. The first version, which is whole, is not counted.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from agents.bench.hams.queries import STREAMS, in_batches
from agents.bench.hams.services import SERVICES
from agents.bench.pard.output import Table
from agents.models.declared import load_declared
from agents.models.inputs import Inputs
from agents.models.loading import load_model
from agents.models.stateful import Machine
from checkpoint.capture import Capture
from checkpoint.chunks import ChunkLog
from checkpoint.layout import CHUNK_BYTES
from checkpoint.manifests import describe, seal
from checkpoint.pages import Pages
from lineage.marks import INITIAL, Version
from lineage.replication import Batch, InputPlace, Manifest, Record
from lineage.values.replication import encode
from topology.load import load

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agents.bench.hams.services import Service
    from agents.bench.hams.setting import Setting
    from topology.spec import StageSpec

BATCH = 64
_COUNTED, _COUNTED_LARGE = 12, 4  # batches; of a service with a state of 100 MB
_LARGE = "ol-large"
_GROUPS = (1, 32)  # of eight streams; a batch's queries are of one
_CHAIN = ((1, INITIAL),)


class Replicated:
    """One stateful stage, and what its versions write."""

    def __init__(self, spec: StageSpec) -> None:
        """Load its model. Raises ModelError."""
        assert spec.model is not None  # a stage with a state has one
        assert spec.state is not None  # as its caller has seen
        self._machine = Machine(spec.name, load_declared(spec.name, spec.model, spec.arguments, "cpu", spec.state))
        self._keyed = spec.state == "keyed"
        self._capture = Capture(pages=Pages(CHUNK_BYTES) if self._keyed else None)
        self._log = ChunkLog(1)
        self._before: Any = None
        self._n = 0
        self.versions: list[dict[str, int]] = []

    def step(self, batch: Sequence[Inputs]) -> list[Mapping[str, Any]]:
        outputs = self._machine.compute(batch)
        touched = self._machine.update()
        state = self._machine.state
        captured = self._capture.take({}, state, touched) if self._keyed else self._capture.take(state)
        self._n += 1
        version = Version(1, self._n)
        writing = self._log.write(version, captured)
        for _ in writing.records():
            pass
        contents = describe(captured, writing, batches=(_recorded(self._n, len(batch)),), inputs=_INPUTS)
        sealed, _ = seal(Manifest(version, _CHAIN, (), "bench"), contents, writing)
        self._log.acknowledged(writing)
        self._log.durable(version)
        self.versions.append(
            {
                "state_bytes": sealed.state_bytes,
                "changed_bytes": captured.changed,
                "written_bytes": sealed.written_bytes,
                "manifest_bytes": len(encode(sealed)),
            }
        )
        if self._before is not None:
            self._before.release()
        self._before = captured
        return outputs


_INPUTS = tuple(InputPlace(partition, 1_000_000, "r2:1000000.64") for partition in range(4))


def _recorded(n: int, size: int) -> Batch:
    """A record of a batch as long as real ones: request ids of 26 characters, as clients make them."""
    return Batch(n, tuple(Record(f"{n:013}{index:013}", index % 4, 1_000_000 + index) for index in range(size)))


def measure_bytes(setting: Setting) -> dict[str, Any]:
    rows = []
    for name in setting.services:
        service = SERVICES[name]
        for groups in _GROUPS if service.key is not None else (1,):
            for stage, versions in _run(service, groups).items():
                streams = groups * STREAMS if service.key is not None else 0
                row = {"service": name, "stage": stage, "batch": BATCH, "streams": streams, "versions": versions}
                rows.append(row)
                written = statistics.median(version["written_bytes"] for version in versions)
                setting.say(f"{name}/{stage}: {written:,.0f} bytes a version of {versions[-1]['state_bytes']:,}")
    return {"rows": rows}


def _run(service: Service, groups: int) -> dict[str, list[dict[str, int]]]:
    """Have a service's stages run one after the other; joins, which are stateless and last, are left out."""
    pipeline = load(service.path)
    graph = pipeline.graph
    stages = [stage for stage in pipeline.spec.stages if len(graph.predecessors[stage.name]) <= 1]
    stateful = {stage.name: Replicated(stage) for stage in stages if stage.state is not None}
    stateless = {
        stage.name: load_model(stage.name, stage.model or "", stage.arguments, "cpu")
        for stage in stages
        if stage.state is None and graph.successors[stage.name]
    }
    counted = _COUNTED_LARGE if service.name == _LARGE else _COUNTED
    for queries in in_batches(service, groups + counted, BATCH, groups):
        given = {"": queries}
        for stage in stages:
            batch = given[next(iter(graph.predecessors[stage.name]), "")]
            if stage.name in stateful:
                outputs = stateful[stage.name].step(batch)
            elif stage.name in stateless:
                outputs = list(stateless[stage.name].predict(batch))
            else:
                continue
            given[stage.name] = [Inputs(dict(each), {}, str(at)) for at, each in enumerate(outputs)]
    return {name: stage.versions[-counted:] for name, stage in stateful.items()}


def tables(result: dict[str, Any]) -> list[Table]:
    rows = []
    for row in result["rows"]:
        versions = row["versions"]
        whole, changed, written, manifest = (
            statistics.median(version[what] for version in versions)
            for what in ("state_bytes", "changed_bytes", "written_bytes", "manifest_bytes")
        )
        rows.append(
            [
                SERVICES[row["service"]].title,
                row["stage"],
                str(row["streams"] or "-"),
                _size(whole),
                _size(changed),
                _size(written),
                _size(manifest),
                f"{100 * (written + manifest) / whole:.1f} %",
            ]
        )
    return [
        Table(
            f"Bytes of a version that covers one batch of {BATCH} queries, medians",
            (
                "service",
                "stage",
                "streams",
                "whole state",
                "changed",
                "written",
                "manifest",
                "of the whole",
            ),
            rows,
            (
                "Real models, updates and queries, without a broker. A stream ends after 48 queries; its state stays.",
                "OL learns by SGD, which changes every parameter.",
            ),
        )
    ]


def _size(count: float) -> str:
    if count >= 1e6:  # noqa: PLR2004 - megabytes
        return f"{count / 1e6:.2f} MB"
    return f"{count / 1e3:.1f} kB"
