"""Who may be the primary of a shard in an epoch: the first claim in the control log has it.

`<p>.control` has one partition, so its order decides (rule 3). Invariants:

* A claim wins if and only if its epoch is higher than those of all claims of its shard before it. So of one epoch at
  most one claimant wins, for every reader, and epochs never come back.
* A claim's key has shard, epoch and claimant: no claim replaces another one. Claims are never deleted, by time or
  otherwise, and nobody appends one twice; so the answer is the same whenever the log is read.
* Winning alone gives nothing: a reign begins with the fence in the version log, and a winner that comes too late finds
  the next one's fence before its own (`spillway.checkpoint.promotion`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.lineage.replication import Claim, Yield

if TYPE_CHECKING:
    from spillway.checkpoint.versions import Place

__all__ = ["Claim", "Claims", "Yield", "key"]


def key(record: Claim | Yield) -> str:
    """Give the key that a record of the control log is appended under."""
    if isinstance(record, Yield):
        return f"yield/{record.stage}/{record.shard}/{record.epoch}/{record.by}"
    return f"claim/{record.stage}/{record.shard}/{record.epoch}/{record.claimant}"


class Claims:
    """The control log as far as it was read. Memory: the newest epoch of each shard."""

    def __init__(self) -> None:
        self._newest: dict[Place, Claim] = {}

    def take(self, claim: Claim) -> bool:
        place = (claim.stage, claim.shard)
        if claim.epoch <= self.epoch(place):
            return False
        self._newest[place] = claim
        return True

    def epoch(self, place: Place) -> int:
        """Give the newest epoch that was won; 0 if none was."""
        newest = self._newest.get(place)
        return 0 if newest is None else newest.epoch

    def winner(self, place: Place) -> str:
        """Give who has won the newest epoch, and is to be watched; empty if nobody has."""
        newest = self._newest.get(place)
        return "" if newest is None else newest.claimant
