"""Which Kafka a command uses: the one it is told, else the one where the pipeline is served, else the local one."""

from __future__ import annotations

from pathlib import Path

from agents.broker.folder import DataFolder
from agents.cli.options import broker_dir, given
from agents.supervise.registry import ServeEntry
from lineage.errors import UsageError
from producers.connection import ClientSettings


def find_cluster(
    bootstrap: str | None, client_config: Path | None, *, run_dir: Path | None = None, pipeline: str | None = None
) -> ClientSettings:
    """The cluster for a client of `pipeline`. Raises `UsageError`, saying how to name one, where none is to be found.

    In this order: the local broker that --broker-dir names on the command line; `bootstrap` and `client_config` (the
    options, or the environment); what the supervisor of the pipeline in `run_dir` uses; the broker that `spillway
    broker start` started in this directory, or in $SPILLWAY_BROKER_DIR.
    """
    folder = broker_dir()
    if given("broker_dir"):
        if given("bootstrap"):
            raise UsageError("--bootstrap and --broker-dir exclude each other: each names a cluster")
        if DataFolder(folder).bootstrap() is None:
            raise UsageError(f"no broker runs on {folder}: start it with 'spillway broker start --broker-dir {folder}'")
        return ClientSettings.load(DataFolder(folder).bootstrap())
    if bootstrap is not None or client_config is not None:
        return ClientSettings.load(bootstrap, client_config)
    if run_dir is not None and pipeline is not None:
        served = ServeEntry.read(run_dir, pipeline)
        if served is not None and served.alive():
            return ClientSettings.load(
                served.bootstrap, Path(served.client_config) if served.client_config is not None else None
            )
    local = DataFolder(folder).bootstrap()
    if local is not None:
        return ClientSettings.load(local)
    raise UsageError(
        "no Kafka broker is named, and none was started here: serve the pipeline from this directory, or give "
        "--bootstrap HOST:PORT or set SPILLWAY_BOOTSTRAP"
    )
