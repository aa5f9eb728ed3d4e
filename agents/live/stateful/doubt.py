"""Why no reign begins: a version above its base has a manifest that nobody can judge (`Logs.doubtful`, rule 16)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lineage.errors import CheckpointError

if TYPE_CHECKING:
    from lineage.marks import Place, Version


def doubt(place: Place, doubtful: Version, base: Version) -> CheckpointError:
    """Say it, and what to do."""
    return CheckpointError(
        f"no reign of {place[0]}/{place[1]} may begin from {base}: its version log has a manifest of {doubtful}, which "
        "requires a shard that the pipeline does not have. If the spec was changed, serve the one of before, or take a "
        f"new name for the pipeline; if a stranger wrote it, export {base} and import it again ('spillway state')"
    )
