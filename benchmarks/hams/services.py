"""The services that are measured: HAMS' six (figures 8 and 9) in small, and a bandit; beside each, the paper's word."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

PIPELINES = Path(__file__).parent / "pipelines"
EXAMPLES = Path(__file__).parents[2] / "examples" / "stateful"


@dataclass(frozen=True, slots=True)
class Paper:
    """Milliseconds at batch 64: Table I, and recovery from Table II (lineage-stash's in its text's seconds)."""

    latency: Mapping[str, float]
    recovery: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Service:
    """One service."""

    name: str
    title: str
    file: str
    payload: str
    key: str | None  # the input that is each query's key
    victim: str  # the stateful stage whose primary is killed
    paces: Mapping[str, float] = field(default_factory=dict)  # seconds a batch of 64 takes at each stage, as emulated
    paper: Paper | None = None
    rate: float = 50.0  # queries a second while its processes are killed: what leaves two cores room

    @property
    def path(self) -> Path:
        return next(file for folder in (PIPELINES, EXAMPLES) if (file := folder / self.file).is_file())


def _paper(latency: tuple[float, float, float, float], recovery: tuple[float, float, float]) -> Paper:
    return Paper(
        dict(zip(("nspb", "s1", "s2", "remus"), latency, strict=True)),
        dict(zip(("nspb", "remus", "lineage-stash"), recovery, strict=True)),
    )


# The paces are chosen so that a service without replication takes about as long as the paper's with HAMS (Table I, the
# transcriber's 1471 ms from section VI-B); how the paper's time is shared among its operators is not told otherwise.
SERVICES = {
    service.name: service
    for service in (
        Service(
            "sa", "SA", "sa.yaml", "benchmarks.hams.pipelines.payload:talk", "stream", "sentiment",
            {"transcribe": 1.47, "sentiment": 0.1, "topic": 0.1},
            _paper((1604.66, 1640.32, 1664.12, 1671.88), (116.12, 109.23, 124_430)), rate=10.0,
        ),
        Service(
            "sp", "SP", "sp.yaml", "benchmarks.hams.pipelines.payload:tick", "share", "lstm",
            {"lstm": 0.08, "autoregression": 0.05, "neighbours": 0.05, "combine": 0.02},
            _paper((123.02, 152.92, 172.41, 210.45), (142.43, 123.12, 32_040)), rate=10.0,
        ),
        Service(
            "ap", "AP", "ap.yaml", "benchmarks.hams.pipelines.payload:frame", "camera", "track",
            {"detect": 0.08, "track": 0.08, "foresee": 0.06, "steer": 0.03},
            _paper((289.06, 320.18, 349.80, 375.94), (150.01, 119.01, 56_940)), rate=10.0,
        ),
        Service(
            "fd", "FD", "fd.yaml", "benchmarks.hams.pipelines.payload:pair", "camera", "left",
            {"detect-left": 0.08, "detect-right": 0.08, "left": 0.1, "right": 0.1, "fuse": 0.01},
            _paper((224.94, 252.05, 271.42, 300.86), (143.25, 127.34, 47_820)), rate=10.0,
        ),
        Service(
            "ol-large", "OL(V)", "ol-large.yaml", "benchmarks.hams.pipelines.payload:picture", None, "learn",
            {"learn": 0.25},
            _paper((292.47, 450.23, 426.13, 508.64), (254.19, 315.42, 62_100)), rate=1.0,
        ),
        Service(
            "ol-small", "OL(M)", "ol-small.yaml", "benchmarks.hams.pipelines.payload:picture", None, "learn",
            {"learn": 0.02},
            _paper((22.31, 32.90, 35.04, 43.26), (134.74, 141.84, 21_090)), rate=5.0,
        ),
        Service("bandit", "bandit", "bandit.yaml", "examples.stateful.payload:offer", None, "bandit"),
    )
}  # fmt: skip
EACH_BATCH = "lineage-stash-1"
MODES = ("none", "nspb", "s1", "s2", "remus", "lineage-stash", EACH_BATCH, "kafka-eos")
_LABELS = {EACH_BATCH: "lineage-stash, a copy at every batch"}


def replication(mode: str) -> dict[str, Any]:
    """What a stateful stage says of a mode: `lineage-stash-N` is lineage-stash that copies the state each N requests.

    With 1 that is at every batch, which costs the paper's Lineage Stash 81 %. Its copy does not stop the next batch
    here, as the paper's does; where copying takes longer than a batch, the next copy waits for it.
    """
    name, _, every = mode.rpartition("-")
    return {"replication": name, "checkpoint_every": int(every)} if every.isdigit() else {"replication": mode}


def label(mode: str) -> str:
    return _LABELS.get(mode, mode)
