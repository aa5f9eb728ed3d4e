"""Which process of a served pipeline is a shard's primary, and which are its backups, by their own metrics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from agents.supervise.registry import entries
from agents.supervise.scrape import scrape
from lineage.metric_names import STATE_BACKUP_LAG_VERSIONS

if TYPE_CHECKING:
    from pathlib import Path

    from agents.supervise.registry import Entry
    from agents.supervise.scrape import Snapshot

PRIMARY, BACKUP = "primary", "backup"
Standing = tuple["Entry", "Snapshot"]


def members(run_dir: Path, pipeline: str, stage: str, shard: int = 0) -> dict[str, Standing]:
    """The living members of a shard by role; of several backups one that has all durable versions, if there is one."""
    found: dict[str, Standing] = {}
    for entry in entries(run_dir, pipeline):
        if entry.stage != stage or not entry.name.startswith(f"{stage}.{shard}.") or not entry.alive():
            continue
        snapshot = scrape(entry, time.monotonic())
        if snapshot is not None and snapshot.role:
            known = found.get(snapshot.role)
            if known is None or known[1].value(STATE_BACKUP_LAG_VERSIONS) > snapshot.value(STATE_BACKUP_LAG_VERSIONS):
                found[snapshot.role] = entry, snapshot
    return found
