"""What every served benchmark begins with: a Kafka of its own, and a pipeline that is served on it.

Processes compute with one thread each, so that they share a machine's cores alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from benchmarks.steady import until
from spillway.agents.broker import EmbeddedBroker
from spillway.agents.cli.commands.serve import ONE_THREAD_EACH
from spillway.agents.cli.options import cache_dir
from spillway.agents.supervise.registry import ServeEntry
from spillway.agents.supervise.service import ServiceSettings, served
from spillway.lineage.errors import SpillwayError
from spillway.producers.client.exchange import Exchange
from spillway.producers.connection import ClientSettings
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import psutil

    from spillway.agents.supervise.service import Service
    from spillway.topology.load import Pipeline

COMMAND: Final = (sys.executable, "-P", "-m", "spillway.agents.cli.main")
_END_SECONDS: Final = 60.0
_T = TypeVar("_T")


@contextmanager
def kafka() -> Iterator[tuple[Path, ClientSettings]]:
    """Make a folder to work in, and start a Kafka in it."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as folder:
        work = Path(folder)
        with EmbeddedBroker(work / "kafka", cache_dir=cache_dir()) as broker:
            yield work, ClientSettings(bootstrap=broker.bootstrap)


def environment() -> dict[str, str]:
    """Return the environment of processes that are measured."""
    return {**dict.fromkeys(ONE_THREAD_EACH, "1"), **os.environ}


def started(command: Sequence[str], folder: Path, log: Path, **more: str) -> subprocess.Popen[bytes]:
    """Start a process in a folder, with its output added to a log; `more`: of its environment."""
    with log.open("ab") as file:
        return subprocess.Popen(command, cwd=folder, stdout=file, stderr=file, env={**environment(), **more})


def apart(function: Callable[..., _T], *arguments: Any) -> _T:
    """Call a function in a process of its own, and return what it returns."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def ended(process: subprocess.Popen[bytes], within: float = _END_SECONDS) -> None:
    """Ask a process to end, and kill it where it does not."""
    process.terminate()
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def serve(
    pipeline: Pipeline,
    settings: ClientSettings,
    run_dir: Path,
    *,
    say: Callable[[str], None] = lambda _text: None,
    timeout: float = 300.0,
    **options: Any,
) -> Iterator[Service]:
    """Serve a pipeline from this process; `options` are further ones of `ServiceSettings`."""
    service = ServiceSettings(pipeline, settings, run_dir, environment=environment(), **options)
    with served(service, say=say, timeout=timeout) as running:
        yield running


@contextmanager
def commanded(work: Path, text: str, *options: str) -> Iterator[tuple[Pipeline, ServeEntry]]:
    """Serve the pipeline file `text` from a folder by the command, as a process of its own that registers in `run`."""
    file = work / "pipeline.yaml"
    file.write_text(text)
    pipeline = load(file)
    command, log = [*COMMAND, "serve", file.name, "--quiet", "--run-dir", "run", *options], work / "serve.log"
    process = started(command, work, log)

    def ready() -> ServeEntry | None:
        if process.poll() is not None:
            raise SpillwayError(f"the pipeline did not become ready: {log.read_text()[-2000:]}")
        entry = ServeEntry.read(work / "run", pipeline.spec.name)
        return entry if entry is not None and entry.ready else None

    try:
        yield pipeline, until(ready, f"the pipeline is ready; see {log}")
    finally:
        ended(process)


def exchange(settings: ClientSettings, pipeline: str, linger: float = 0.001) -> closing[Exchange]:
    """Open what `run_load` sends by, closed at the end of the context."""
    return closing(Exchange(settings, pipeline, linger=linger))


def cpu_of(process: psutil.Process) -> float:
    """Return the seconds of processor time that a process has taken so far."""
    times = process.cpu_times()
    return float(times.user + times.system)
