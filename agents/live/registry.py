"""Where a live process says that it is there: a small file in the run directory, and its metrics on a loopback port."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server

if TYPE_CHECKING:
    from agents.live.metrics import GateMetrics, StageMetrics

LOOPBACK = "127.0.0.1"


def entry_path(run_dir: Path, pipeline: str, stage: str, replica: int) -> Path:
    """Name the file of one replica."""
    return run_dir / pipeline / f"{stage}.{replica}.json"


class Registration:
    """A process's entry in the run directory, together with the server behind its port."""

    def __init__(self, run_dir: Path, metrics: StageMetrics | GateMetrics) -> None:
        """Serve the metrics on a free loopback port, then write the entry."""
        registry = CollectorRegistry()
        registry.register(metrics)
        self._server, self._thread = start_http_server(0, addr=LOOPBACK, registry=registry)
        self.port: int = self._server.server_port
        self.path = entry_path(run_dir, metrics.pipeline, metrics.stage, metrics.replica)
        self._entry: dict[str, object] = {
            "pipeline": metrics.pipeline,
            "stage": metrics.stage,
            "replica": metrics.replica,
            "pid": os.getpid(),
            "port": self.port,
            "started_unix": time.time(),
            "role": metrics.role,
            "ready": False,
        }
        self._write(self._entry)

    def mark_ready(self) -> None:
        """Say that the process serves: its model is loaded and its partitions were assigned for the first time."""
        if not self._entry["ready"]:
            self._entry["ready"] = True
            self._write(self._entry)

    def _write(self, entry: dict[str, object]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(json.dumps(entry))
        partial.replace(self.path)  # a reader sees the whole entry or none

    def close(self) -> None:
        """Take the entry away, unless a successor has written its own, and stop serving."""
        try:
            if json.loads(self.path.read_text())["pid"] == os.getpid():
                self.path.unlink()
        except (OSError, ValueError, KeyError):
            pass  # gone, or not ours to judge
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(1.0)


def serve_metrics(run_dir: Path, metrics: StageMetrics | GateMetrics) -> Registration:
    """Make a live process visible; close the registration at its clean end."""
    return Registration(Path(run_dir), metrics)
