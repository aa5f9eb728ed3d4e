"""What every served benchmark begins with: a Kafka of its own, and a pipeline that is served on it.

Processes compute with one thread each, so that they share a machine's cores alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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
    from collections.abc import Callable, Iterator

    import psutil

    from spillway.agents.supervise.service import Service
    from spillway.topology.load import Pipeline

_START_SECONDS: Final = 120.0


@contextmanager
def kafka(bootstrap: str | None = None, client_config: Path | None = None) -> Iterator[tuple[Path, ClientSettings]]:
    """Make a folder to work in, and start a Kafka in it unless one is named."""
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-bench-")))
        if bootstrap is None and client_config is None:
            broker = stack.enter_context(EmbeddedBroker(work / "kafka", cache_dir=cache_dir()))
            yield work, ClientSettings(bootstrap=broker.bootstrap)
        else:
            yield work, ClientSettings.load(bootstrap, client_config)


def environment() -> dict[str, str]:
    """Return the environment of processes that are measured."""
    return {**dict.fromkeys(ONE_THREAD_EACH, "1"), **os.environ}


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
    command = [sys.executable, "-P", "-m", "spillway.agents.cli.main", "serve", file.name, "--quiet"]
    with (work / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--run-dir", "run", *options], cwd=work, stdout=log, stderr=log, env=environment()
        )
    try:
        give_up = time.monotonic() + _START_SECONDS
        while (entry := ServeEntry.read(work / "run", pipeline.spec.name)) is None or not entry.ready:
            if process.poll() is not None or time.monotonic() > give_up:
                raise SpillwayError(f"the pipeline did not become ready: {(work / 'serve.log').read_text()[-2000:]}")
            time.sleep(0.02)
        yield pipeline, entry
    finally:
        process.terminate()
        process.wait(_START_SECONDS)


def exchange(settings: ClientSettings, pipeline: str, linger: float = 0.001) -> closing[Exchange]:
    """Open what `run_load` sends by, closed at the end of the context."""
    return closing(Exchange(settings, pipeline, linger=linger))


def cpu_of(process: psutil.Process) -> float:
    """Return the seconds of processor time that a process has taken so far."""
    times = process.cpu_times()
    return float(times.user + times.system)
