"""Which Kafka a command uses: the one it is told, else the one where the pipeline is served, else the local one."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.agents.broker.folder import DataFolder
from spillway.agents.cli.options import broker_dir, cluster_options, given, pipeline_argument, run_dir_option
from spillway.agents.supervise.registry import ServeEntry
from spillway.lineage.errors import BrokerError, SpillwayError, UsageError
from spillway.producers.cluster import require_listening
from spillway.producers.connection import ClientSettings
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.topology.load import Pipeline
    from spillway.topology.spec import PipelineSpec


@dataclass(frozen=True)
class Source:
    """A pipeline, and the options that say which cluster it is on."""

    pipeline: Pipeline
    run_dir: Path
    bootstrap: str | None
    client_config: Path | None

    @property
    def spec(self) -> PipelineSpec:
        return self.pipeline.spec

    @functools.cached_property
    def settings(self) -> ClientSettings:
        """Found when it is first asked for. Raises UsageError or BrokerError where there is no cluster."""
        return find_cluster(self.bootstrap, self.client_config, run_dir=self.run_dir, pipeline=self.spec.name)


def from_source(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a command one on a PIPELINE: it gets the `Source` first, and has the options that say where it is."""

    @functools.wraps(function)
    def called(
        pipeline: Path, bootstrap: str | None, client_config: Path | None, run_dir: Path, **arguments: Any
    ) -> Any:
        return function(Source(load(pipeline), run_dir, bootstrap, client_config), **arguments)

    return pipeline_argument(cluster_options(run_dir_option(called)))


def find_cluster(
    bootstrap: str | None, client_config: Path | None, *, run_dir: Path | None = None, pipeline: str | None = None
) -> ClientSettings:
    """The cluster for a client of `pipeline`. Raises `UsageError`, saying how to name one, where none is to be found.

    Raises `BrokerError` where nothing listens at its address, or the local Kafka is being started.

    In this order: the local broker that --broker-dir names on the command line; `bootstrap` and `client_config` (the
    options, or the environment); what the supervisor of the pipeline in `run_dir` uses; the broker that `spillway
    broker start` started in this directory, or in $SPILLWAY_BROKER_DIR.
    """
    try:
        settings = _named_cluster(bootstrap, client_config, run_dir, pipeline)
        require_listening(settings.bootstrap)
    except SpillwayError as error:
        local = DataFolder(broker_dir())
        if bootstrap in {None, local.bootstrap()} and local.starting():
            raise BrokerError(
                f"this folder's Kafka ({local.path}) is starting: try again when it has started"
            ) from error
        raise
    return settings


def _named_cluster(
    bootstrap: str | None, client_config: Path | None, run_dir: Path | None, pipeline: str | None
) -> ClientSettings:
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
        served = ServeEntry.running(run_dir, pipeline)
        if served is not None:
            return ClientSettings.load(
                served.bootstrap, Path(served.client_config) if served.client_config is not None else None
            )
    local = DataFolder(folder).bootstrap()
    if local is not None:
        return ClientSettings.load(local)
    if DataFolder(folder).marker.exists():
        raise UsageError(
            f"this folder's Kafka ({folder}) is stopped: start it by 'spillway broker start', or name another by "
            "--bootstrap HOST:PORT or SPILLWAY_BOOTSTRAP"
        )
    raise UsageError(
        "no Kafka broker is named, and none was started here: serve the pipeline from this directory, or give "
        "--bootstrap HOST:PORT or set SPILLWAY_BOOTSTRAP"
    )
