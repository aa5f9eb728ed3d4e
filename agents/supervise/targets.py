"""A file for Prometheus' file-based service discovery: where the metrics of a pipeline's processes are now."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from agents.supervise.registry import ServeEntry, entries
from lineage import metric_names as names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EVERY_SECONDS: Final = 2.0


def targets_path(run_dir: Path, pipeline: str) -> Path:
    return run_dir / pipeline / "prometheus" / "targets.json"


class Targets:
    """Writes the file whenever a process has come, gone, or taken another port."""

    def __init__(self, run_dir: Path, pipeline: str) -> None:
        self._run_dir = run_dir
        self._pipeline = pipeline
        self._path = targets_path(run_dir, pipeline)
        self._written: list[dict[str, Any]] | None = None
        self._next = float("-inf")

    def keep(self, now: float) -> None:
        """Look, at most every `EVERY_SECONDS`."""
        if now < self._next:
            return
        self._next = now + EVERY_SECONDS
        found = list(self._found())
        if found == self._written:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".partial")  # Prometheus reads *.json alone
        draft.write_text(json.dumps(found, indent=1))
        draft.replace(self._path)
        self._written = found

    def _found(self) -> Iterator[dict[str, Any]]:
        serve = ServeEntry.read(self._run_dir, self._pipeline)
        if serve is not None and serve.port:
            yield self._target(serve.host, serve.port, "supervisor")
        for entry in entries(self._run_dir, self._pipeline):
            if entry.port and entry.alive():
                yield self._target(entry.host, entry.port, entry.name)

    def _target(self, host: str, port: int, place: str) -> dict[str, Any]:
        return {"targets": [f"{host}:{port}"], "labels": {names.PIPELINE: self._pipeline, names.PLACE: place}}
