"""Where a live process says that it is there: a small file in the run directory, which names its metrics' port."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import defaultdict
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from spillway.agents.workers.forks import ours
from spillway.lineage.errors import UsageError
from spillway.lineage.metric_names import LABELS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from prometheus_client.registry import Collector

    from spillway.agents.metrics import ProcessMetrics


# A process's HTTP port: metrics for Prometheus, and two questions of an orchestrator.
#
# GET /metrics   every metric of the process, in Prometheus' text format
# GET /figures   the same as JSON: by name, the labels and the value of each sample
# GET /recent    of the gate: its last drops and failures, as JSON
# GET /healthz   200 while its main loop turns; else 503 with the reason: it hangs, start it again
# GET /readyz    200 while it serves; else 503 with the reason: it starts, or part of its input is stopped

LOOPBACK: Final = "127.0.0.1"
LOOP_SECONDS: Final = 10.0  # within which a main loop turns
_EVERYWHERE: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - to be recognised, not to be bound


class Address(NamedTuple):
    """Where to listen. Port 0: on any that is free."""

    host: str = LOOPBACK
    port: int = 0

    @property
    def local(self) -> str:
        return LOOPBACK if self.host in _EVERYWHERE else self.host


class MetricsServer:
    """Serves until it is closed, in threads of its own. `healthy` and `ready` give what is wrong, or nothing.

    `recent` gives what is JSON, where the process has such a list.
    """

    def __init__(
        self,
        metrics: Collector,
        address: Address,
        *,
        healthy: Callable[[], str] = str,
        ready: Callable[[], str] = str,
        recent: Callable[[], object] | None = None,
    ) -> None:
        """Listen. Raises UsageError where the port cannot be had."""
        registry = CollectorRegistry()
        registry.register(metrics)
        page: Callable[..., Iterable[bytes]] = make_wsgi_app(registry)
        documents: dict[str, Callable[[], object]] = {"/figures": lambda: samples_of(metrics)}
        if recent is not None:
            documents["/recent"] = recent

        def answer(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            path = environment["PATH_INFO"]
            if path in documents:
                start("200 OK", [("Content-Type", "application/json")])
                return [json.dumps(documents[path]()).encode()]
            asked = {"/healthz": healthy, "/readyz": ready}.get(path)
            if asked is None:
                return page(environment, start)
            wrong = asked()
            start("503 Service Unavailable" if wrong else "200 OK", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{wrong or 'ok'}\n".encode()]

        try:
            self._server = make_server(*address, answer, _Server, _Handler)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {address.host}:{address.port} for metrics: {error.strerror}; choose another "
                "address with --metrics-host and --metrics-port"
            ) from error
        ours(self._server.socket)
        self.address = Address(address.host, self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(1.0)


def samples_of(metrics: Collector) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return what a process counts: by metric, the labels and the value of each sample, less the labels of them all."""
    found: defaultdict[str, list[tuple[dict[str, str], float]]] = defaultdict(list)
    for family in metrics.collect():
        for sample in family.samples:
            own = {label: value for label, value in sample.labels.items() if label not in LABELS}
            found[sample.name].append((own, float(sample.value)))
    return found


def turns(loop: asyncio.AbstractEventLoop) -> Callable[[], str]:
    """Ask whether an event loop turns, from another thread."""

    def ask() -> str:
        turned = threading.Event()
        loop.call_soon_threadsafe(turned.set)
        return "" if turned.wait(LOOP_SECONDS) else f"the event loop has not turned for {LOOP_SECONDS:.0f} s"

    return ask


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing: a scrape a second is no news."""


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
        self.path = Path(run_dir) / pipeline / f"{label or f'{stage}.{replica}'}.json"
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
    """A live process made visible: its entry in the run directory, and the server behind its port."""

    def __init__(
        self,
        run_dir: Path,
        metrics: ProcessMetrics,
        address: Address = Address(),  # noqa: B008 - immutable
        healthy: Callable[[], str] = str,
        recent: Callable[[], object] | None = None,
    ) -> None:
        """Serve the metrics, then write the entry; close it at the process's clean end.

        `healthy` and `recent` are those of `MetricsServer`. Raises UsageError where the port cannot be had.
        """
        self._ready = False
        self._metrics = metrics
        self._server = MetricsServer(metrics, address, healthy=healthy, ready=self._what_is_missing, recent=recent)
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
            return "it has not started serving"
        stopped = sorted(self._metrics.stopped)
        return f"partitions {', '.join(map(str, stopped))} are stopped: their input log lost records" if stopped else ""

    def close(self) -> None:
        self._entry.close()
        self._server.close()
