"""A broker's data folder: whose it is, what is in it, and which process runs on it now.

broker.json        marks the folder as ours; one without it is never written to or wiped, unless it is empty
running.json       the broker that runs on it now: process, port; gone after a clean stop
server.properties  Kafka's settings, written anew at every start
kafka.log          what Kafka said since the last start; kafka.log.1 what it said before
log/               Kafka's own: topics, offsets, metadata

A cluster of several nodes has broker.json, and beside it

cluster.json       its id, and the ports of its controllers, one for each node
node-1/, node-2/.. a folder as above for each
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

from spillway.agents.broker.settings import HOST
from spillway.lineage.errors import BrokerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LEAST_FREE_BYTES = 256 * 1024 * 1024
_SAME_START_SECONDS = 1.0


@dataclass(frozen=True)
class Membership:
    """What the nodes of a cluster have to agree on: its id, and the ports of their controllers, node 1's first."""

    id: str
    controllers: tuple[int, ...]


@dataclass(frozen=True)
class RunningBroker:
    """A broker process and where it listens; `created` tells it from a later process with the same id."""

    pid: int
    created: float
    port: int
    left: bool = False  # by the process that kept it, to whoever adopts it

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def process(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) < _SAME_START_SECONDS
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None

    def listens(self) -> bool:
        """Whether the process itself listens at the port; True where the system does not tell."""
        try:
            connections = psutil.Process(self.pid).net_connections("tcp")
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True
        return any(each.status == psutil.CONN_LISTEN and each.laddr.port == self.port for each in connections)


class DataFolder:
    """The files of one broker, or of a cluster of them, under `path`; nothing is touched before `prepare`."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self.marker = self.path / "broker.json"
        self.properties = self.path / "server.properties"
        self.log = self.path / "kafka.log"
        self.data = self.path / "log"
        self._running = self.path / "running.json"
        self._cluster = self.path / "cluster.json"
        self._claim = self.path.parent / f".{self.path.name}.claim"

    @property
    def formatted(self) -> bool:
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
                    "free some space, or name another folder with --broker-dir"
                )
            if not self.marker.exists():
                self.marker.write_text(json.dumps({"made_by": "spillway broker", "format": 1}) + "\n")
            if self.log.exists():
                self.log.replace(self.log.with_name("kafka.log.1"))

    def check_ours(self) -> None:
        """Raise `UsageError` if the folder holds something that we did not put there."""
        with self.readable_errors():
            if self.path.exists() and not self.path.is_dir():
                raise UsageError(f"{self.path} is a file; a broker needs a folder: name another with --broker-dir")
            if self.path.exists() and not self.marker.exists() and any(self.path.iterdir()):
                raise UsageError(
                    f"{self.path} is not empty and was not made by 'spillway broker', so it is left alone: "
                    "name another folder with --broker-dir"
                )

    def check_stopped(self) -> None:
        """Raise `UsageError` while a broker runs on the folder, or if it is not ours."""
        self.check_ours()
        for running in self.brokers():
            raise UsageError(f"a broker runs on {self.path} (process {running.pid}): stop it first")

    def wipe(self) -> None:
        """Delete everything that the broker kept. Raises `UsageError` while one runs on it, or if it is not ours."""
        self.check_stopped()
        with self.readable_errors():
            if self.path.exists():
                shutil.rmtree(self.path)

    def running(self) -> RunningBroker | None:
        noted = self.last()
        return noted if noted is not None and noted.process() is not None else None

    def brokers(self) -> list[RunningBroker]:
        """The brokers that run on the folder now: one at most, or those of a cluster."""
        return [running for node in self.nodes() if (running := node.running()) is not None]

    def bootstrap(self) -> str | None:
        """The address for clients, of all nodes of a cluster; None where none of them runs."""
        if not self.brokers():
            return None
        return ",".join(noted.bootstrap for node in self.nodes() if (noted := node.last()) is not None)

    def nodes(self) -> list[DataFolder]:
        membership = self.membership()
        return [self] if membership is None else [self.node(n) for n, _ in enumerate(membership.controllers, 1)]

    def node(self, number: int) -> DataFolder:
        return DataFolder(self.path / f"node-{number}")

    def membership(self) -> Membership | None:
        """What a cluster's nodes have agreed on; None where the folder is a single broker's."""
        try:
            noted = json.loads(self._cluster.read_text())
            return Membership(str(noted["id"]), tuple(map(int, noted["controllers"])))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise BrokerError(
                f"{self._cluster} is damaged, and the cluster's nodes are not known without it: 'spillway broker "
                "reset' deletes the data and starts empty"
            ) from error

    def agree(self, membership: Membership) -> None:
        self._write(self._cluster, asdict(membership))

    def last(self) -> RunningBroker | None:
        try:
            return RunningBroker(**json.loads(self._running.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None  # absent, or cut short by a crash: then nothing is known

    def note(self, running: RunningBroker) -> None:
        """Write down which process runs on the folder, whole or not at all."""
        self._write(self._running, asdict(running))

    def _write(self, file: Path, facts: dict[str, object]) -> None:
        with self.readable_errors():
            draft = file.with_suffix(".tmp")
            draft.write_text(json.dumps(facts) + "\n")
            draft.replace(file)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the folder against other processes that would start a broker on it at this moment."""
        with self.readable_errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            claim = os.open(self._claim, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(claim, fcntl.LOCK_EX)
            yield
        finally:
            os.close(claim)

    def starting(self) -> bool:
        """Return whether a process is starting a broker on the folder at this moment (`claimed`)."""
        try:
            with self._claim.open("rb") as claim:
                fcntl.flock(claim, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    @contextmanager
    def readable_errors(self) -> Iterator[None]:
        """Turn what the file system refuses into an error that says what to do."""
        try:
            yield
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise BrokerError(f"the disk of {self.path} is full: free some space, or use --broker-dir") from error
            raise BrokerError(
                f"cannot use {self.path} as a broker's data folder ({error.strerror or error}): "
                "name another with --broker-dir"
            ) from error
