"""Why no reign begins: a record that may stand for a version above its base cannot be judged (`Logs.doubtful`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from checkpoint.damage import Damage, DamageError
from lineage.errors import CheckpointError

if TYPE_CHECKING:
    from lineage.marks import Place, Version


def doubt(place: Place, doubtful: Version | Damage, base: Version) -> CheckpointError:
    """Say it, and what to do."""
    if isinstance(doubtful, Damage):
        return DamageError(doubtful)
    return CheckpointError(
        f"no reign of {place[0]}/{place[1]} may begin from {base}: its version log has a manifest of {doubtful}, which "
        "requires a shard that the pipeline does not have. If the spec was changed, serve the one of before, or take a "
        f"new name for the pipeline; if a stranger wrote it, export {base} and import it again ('spillway state')"
    )
