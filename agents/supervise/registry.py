"""Who serves on this machine: the entries that live processes leave in the run directory, read and judged.

<run_dir>/<pipeline>/<process>.json           one per process: its id, its metrics port, whether it is ready
<run_dir>/<pipeline>/serve.json               the supervisor, and the cluster that it serves on
<run_dir>/<pipeline>/file                     the pipeline's file; stays when it is served no more
<run_dir>/<pipeline>/prometheus/targets.json  where their metrics are, as Prometheus' file_sd takes it
<run_dir>/<pipeline>/logs/                    what the processes say
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self, TypeVar

import psutil

_Entry = TypeVar("_Entry")
_SUPERVISOR = "serve.json"
# A process writes its entry after it started; one with the same id that started later is another.
_CLOCK_SLACK_SECONDS = 2.0


def is_alive(pid: int, started_before: float) -> bool:
    """Whether a process with this id runs that started before that time (unix seconds)."""
    try:
        process = psutil.Process(pid)
        return process.create_time() < started_before + _CLOCK_SLACK_SECONDS and (
            process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.NoSuchProcess:
        return False


@dataclass(frozen=True)
class Entry:
    """One process of a pipeline, as it registered itself."""

    pipeline: str
    stage: str
    replica: int
    pid: int
    port: int
    started_unix: float
    role: str  # "stage", "standby", "member" or "gate"
    ready: bool = False
    label: str = ""  # its name, where that is not stage and replica
    host: str = "127.0.0.1"  # where it is reached for its metrics

    @property
    def name(self) -> str:
        return self.label or f"{self.stage}.{self.replica}"

    def alive(self) -> bool:
        """Whether the process still runs; one that was killed leaves its entry behind."""
        return is_alive(self.pid, self.started_unix)


@dataclass(frozen=True)
class ServeEntry:
    """The supervisor of a pipeline, and where that pipeline is."""

    pipeline: str
    spec: str  # path of the pipeline file
    bootstrap: str
    client_config: str | None
    pid: int
    started_unix: float
    ready: bool = False
    policy: str | None = None  # of every stage, in place of the file's
    policies: str = ""  # what the stages run with, in words
    plan_period: float | None = None  # seconds between two words of a replica to the others; None: not known
    port: int = 0  # of the supervisor's metrics; 0: none
    host: str = "127.0.0.1"

    def alive(self) -> bool:
        return is_alive(self.pid, self.started_unix)

    def write(self, run_dir: Path) -> Path:
        path = serve_path(run_dir, self.pipeline)
        path.parent.mkdir(parents=True, exist_ok=True)
        file = str(Path(self.spec).absolute())
        for target, text in ((path, json.dumps(asdict(self))), (_file_note(run_dir, self.pipeline), file)):
            draft = target.with_suffix(".partial")
            draft.write_text(text, encoding="utf-8")
            draft.replace(target)
        return path

    @classmethod
    def read(cls, run_dir: Path, pipeline: str) -> Self | None:
        return _read(serve_path(run_dir, pipeline), cls)

    @classmethod
    def running(cls, run_dir: Path, pipeline: str) -> Self | None:
        """The supervisor that serves it on this machine now."""
        written = cls.read(run_dir, pipeline)
        return written if written is not None and written.alive() else None


def file_of(run_dir: Path, pipeline: str) -> Path | None:
    """The file from which a pipeline was last served, which may be gone; None where that is not known."""
    try:
        return Path(_file_note(run_dir, pipeline).read_text(encoding="utf-8"))
    except OSError:
        return None


def known(run_dir: Path) -> list[str]:
    """The pipelines that were served from here, by name."""
    return sorted(folder.name for folder in run_dir.glob("*/") if file_of(run_dir, folder.name) is not None)


def with_learners(run_dir: Path, pipeline: str) -> list[str]:
    """A pipeline and its learners (`Pipeline.learner`), of those that were served from here, by name."""
    file = file_of(run_dir, pipeline)
    learners = [name for name in known(run_dir) if str(file_of(run_dir, name)).startswith(f"{file}#")]
    return [pipeline, *learners] if file is not None else [pipeline]


def _file_note(run_dir: Path, pipeline: str) -> Path:
    return run_dir / pipeline / "file"


def serve_path(run_dir: Path, pipeline: str) -> Path:
    return run_dir / pipeline / _SUPERVISOR


def entries(run_dir: Path, pipeline: str | None = None) -> list[Entry]:
    """All processes that registered under `run_dir`, alive or not, by pipeline, stage and replica."""
    folders = [run_dir / pipeline] if pipeline is not None else sorted(run_dir.glob("*/"))
    found = [
        entry
        for folder in folders
        for path in sorted(folder.glob("*.json"))
        if path.name != _SUPERVISOR and (entry := _read(path, Entry)) is not None
    ]
    return sorted(found, key=lambda e: (e.pipeline, e.role == "gate", e.stage, e.role == "standby", e.replica))


def _read(path: Path, kind: type[_Entry]) -> _Entry | None:
    try:
        return kind(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None  # gone meanwhile, or no entry of ours: a folder that users see may hold other files
