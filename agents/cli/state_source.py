"""Where the `spillway state` commands find a pipeline's states, and the options that all of them have."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agents.cli.cluster import find_cluster
from agents.cli.options import cluster_options, json_option, run_dir_option
from agents.live.operator.files import import_torch
from agents.live.operator.histories import read_histories
from agents.live.operator.stored import Store
from topology.load import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agents.live.operator.histories import Histories, Kept
    from agents.live.operator.stored import State
    from lineage.marks import Place
    from lineage.replication import Contents
    from producers.connection import ClientSettings
    from topology.spec import PipelineSpec


@dataclass(frozen=True, slots=True)
class Source:
    """A pipeline and its cluster."""

    spec: PipelineSpec
    settings: ClientSettings

    def histories(self) -> Histories:
        return read_histories(self.settings, self.spec)

    def contents(self, kept: Kept, histories: Histories) -> Contents:
        return self._store(kept.place).contents(kept.manifest, histories.decoder)

    def state(self, kept: Kept, contents: Contents) -> State:
        import_torch(contents)
        return self._store(kept.place).state(contents)

    def _store(self, place: Place) -> Store:
        return Store(self.settings, self.spec.name, place)


def from_source(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command on a PIPELINE gets its `Source` instead, and has the options that say where it is, and --json."""

    @functools.wraps(function)
    def called(
        pipeline: Path, bootstrap: str | None, client_config: Path | None, run_dir: Path, **arguments: Any
    ) -> Any:
        spec = load(pipeline).spec
        settings = find_cluster(bootstrap, client_config, run_dir=run_dir, pipeline=spec.name)
        return function(Source(spec, settings), **arguments)

    for option in (json_option, run_dir_option, cluster_options):
        called = option(called)
    return called
