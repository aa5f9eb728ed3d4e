"""Where a live process says that it is there: a small file in the run directory, which names its metrics' port."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agents.live.metrics_server import Address, MetricsServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.live.metrics import GateMetrics, StageMetrics


def entry_path(run_dir: Path, pipeline: str, name: str) -> Path:
    """Name the file of the process of that name: `<stage>.<replica>`, or its label."""
    return run_dir / pipeline / f"{name}.json"


class Entry:
    """A process's file in the run directory."""

    def __init__(
        self,
        run_dir: Path,
        pipeline: str,
        stage: str,
        replica: int,
        *,
        role: str,
        label: str = "",
        address: Address = Address(),  # noqa: B008 - immutable
    ) -> None:
        """Write it. `label`: the process's name, where that is not stage and replica."""
        self.path = entry_path(Path(run_dir), pipeline, label or f"{stage}.{replica}")
        self._fields: dict[str, object] = {
            "pipeline": pipeline,
            "stage": stage,
            "replica": replica,
            "pid": os.getpid(),
            "host": address.local,
            "port": address.port,
            "started_unix": time.time(),
            "role": role,
            "ready": False,
            "label": label,
        }
        self._write()

    def mark_ready(self) -> None:
        if not self._fields["ready"]:
            self._fields["ready"] = True
            self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(json.dumps(self._fields))
        partial.replace(self.path)  # a reader sees the whole entry or none

    def close(self) -> None:
        """Take the entry away, unless a successor has written its own."""
        try:
            if json.loads(self.path.read_text())["pid"] == os.getpid():
                self.path.unlink()
        except (OSError, ValueError, KeyError):
            pass  # gone, or not ours to judge


class Registration:
    """A process's entry in the run directory, together with the server behind its port."""

    def __init__(
        self, run_dir: Path, metrics: StageMetrics | GateMetrics, address: Address, healthy: Callable[[], str]
    ) -> None:
        """Serve the metrics, then write the entry. Raises UsageError where the port cannot be had."""
        self._ready = False
        self._metrics = metrics
        self._server = MetricsServer(metrics, address, healthy=healthy, ready=self._what_is_missing)
        self.port = self._server.address.port
        self._entry = Entry(
            *(run_dir, metrics.pipeline, metrics.stage, metrics.replica),
            role=metrics.role,
            label=metrics.label,
            address=self._server.address,
        )
        self.path = self._entry.path

    def mark_ready(self) -> None:
        """Say that the process serves: its model is loaded and its partitions were assigned for the first time."""
        self._ready = True
        self._entry.mark_ready()

    def _what_is_missing(self) -> str:
        if not self._ready:
            return "it has not begun to serve"
        stopped = sorted(self._metrics.stopped)
        return f"partitions {', '.join(map(str, stopped))} are stopped: their input log lost records" if stopped else ""

    def close(self) -> None:
        self._entry.close()
        self._server.close()


def serve_metrics(
    run_dir: Path,
    metrics: StageMetrics | GateMetrics,
    address: Address = Address(),  # noqa: B008 - immutable
    healthy: Callable[[], str] = str,
) -> Registration:
    """Make a live process visible; close the registration at its clean end. `healthy`: see `MetricsServer`."""
    return Registration(Path(run_dir), metrics, address, healthy)
