"""A broker's data folder: whose it is, what is in it, and which process runs on it now.

broker.json        marks the folder as ours; one without it is never written to or wiped, unless it is empty
running.json       the broker that runs on it now: process, port; gone after a clean stop
server.properties  Kafka's settings, written anew at every start
kafka.log          what Kafka said since the last start; kafka.log.1 what it said before
log/               Kafka's own: topics, offsets, metadata
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import psutil

from agents.broker.settings import HOST
from lineage.errors import BrokerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LEAST_FREE_BYTES = 256 * 1024 * 1024
_SAME_START_SECONDS = 1.0


@dataclass(frozen=True)
class RunningBroker:
    """A broker process and where it listens; `created` tells it from a later process with the same id."""

    pid: int
    created: float
    port: int

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self.port}"

    def process(self) -> psutil.Process | None:
        """The live process, or None where it is gone."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) < _SAME_START_SECONDS
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


class DataFolder:
    """The files of one broker under `path`; nothing is touched before `prepare`."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self.marker = self.path / "broker.json"
        self.properties = self.path / "server.properties"
        self.log = self.path / "kafka.log"
        self.data = self.path / "log"
        self._running = self.path / "running.json"

    @property
    def formatted(self) -> bool:
        """Whether Kafka's storage has been made."""
        return (self.data / "meta.properties").exists()

    def prepare(self) -> None:
        """Make the folder ours, or raise: `UsageError` for somebody else's, `BrokerError` for a full disk."""
        self.check_ours()
        with self.readable_errors():
            self.path.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self.path).free
            if free < _LEAST_FREE_BYTES:
                raise BrokerError(
                    f"the disk of {self.path} is full ({free >> 20} MiB free, Kafka needs {_LEAST_FREE_BYTES >> 20}): "
                    "free some space, or name another folder with --data-dir"
                )
            if not self.marker.exists():
                self.marker.write_text(json.dumps({"made_by": "spillway broker", "format": 1}) + "\n")
            if self.log.exists():
                self.log.replace(self.log.with_name("kafka.log.1"))

    def check_ours(self) -> None:
        """Raise `UsageError` if the folder holds something that we did not put there."""
        with self.readable_errors():
            if self.path.exists() and not self.path.is_dir():
                raise UsageError(f"{self.path} is a file; a broker needs a folder: name another with --data-dir")
            if self.path.exists() and not self.marker.exists() and any(self.path.iterdir()):
                raise UsageError(
                    f"{self.path} is not empty and was not made by 'spillway broker', so it is left alone: "
                    "name another folder with --data-dir"
                )

    def wipe(self) -> None:
        """Delete everything that the broker kept. Raises `UsageError` while one runs on it, or if it is not ours."""
        self.check_ours()
        running = self.running()
        if running is not None:
            raise UsageError(f"a broker runs on {self.path} (process {running.pid}): stop it first")
        with self.readable_errors():
            if self.path.exists():
                shutil.rmtree(self.path)

    def running(self) -> RunningBroker | None:
        """The broker that runs on the folder now, if one does."""
        noted = self.last()
        return noted if noted is not None and noted.process() is not None else None

    def last(self) -> RunningBroker | None:
        """The last broker that was noted, alive or not."""
        try:
            return RunningBroker(**json.loads(self._running.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None  # absent, or cut short by a crash: then nothing is known

    def note(self, running: RunningBroker) -> None:
        """Write down which process runs on the folder, whole or not at all."""
        with self.readable_errors():
            draft = self._running.with_suffix(".tmp")
            draft.write_text(json.dumps(asdict(running)) + "\n")
            draft.replace(self._running)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the folder against other processes that would start a broker on it at this moment."""
        with self.readable_errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            claim = os.open(self.path.parent / f".{self.path.name}.claim", os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(claim, fcntl.LOCK_EX)
            yield
        finally:
            os.close(claim)

    @contextmanager
    def readable_errors(self) -> Iterator[None]:
        """Turn what the file system refuses into an error that says what to do."""
        try:
            yield
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise BrokerError(f"the disk of {self.path} is full: free some space, or use --data-dir") from error
            raise BrokerError(
                f"cannot use {self.path} as a broker's data folder ({error.strerror or error}): "
                "name another with --data-dir"
            ) from error
