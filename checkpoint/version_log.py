"""A shard's version log: what its records, in their one order, say of reigns and of complete versions.

The log (partition s of `<p>.<stage>.versions`) is the truth that everybody judges by (rule 2). Its records:

* `Fence(epoch, claimant)`: a reign begins. From here on the records of older epochs are void for everyone (rule 3); so
  is a record of a newer epoch before that one's fence. Of one epoch the first fence counts, and its claimant's records.
  (Only who has won the claim fences, `spillway.checkpoint.claims`; so a second one is a fault, and harmless.)
* `Base(epoch, version)`: what the reign starts from, decided by its claimant after it has read up to its fence.
* `Manifest(version, chain, requires, ..)`: the version is complete (a writer appends it after all else is acked), and
  with it every lower n of its epoch: versions may be skipped. `requires` are the marks of all requests since the
  manifest before, merged.

Which keys make compaction harmless (rule 4). A record's key carries its epoch, so a zombie's late record, whatever it
says, never has the key of a newer reign's. A fence's key carries its claimant too, so that two fences of one epoch both
stay, in their order. Fences and bases are never tombstoned: two small records per failover. Manifests are tombstoned by
the owner of the current epoch alone, once a version of its own is durable (`spillway.checkpoint.retention`); so a
manifest that is missing was durable, or dead, when it went. **Nobody appends a key twice**: after a fence that would
move a valid record behind it, where it is void. A writer that cannot tell whether an append stands reads its log.

Void records are counted and change nothing. Records that no correct writer appends (a base off the chain, a manifest
with another chain or out of order) raise CheckpointError in every reader at the same place: going on would mean to
guess what recovery reproduces (rule 16). After a record that cannot be read (`spillway.checkpoint.damage`), a base or
manifest says itself what may be missing before it: its epoch's claimant, and the chain. Work and memory per record are
O(1), plus the chain's length once an epoch.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING

from spillway.checkpoint.versions import INITIAL, LINK_SECONDS, History
from spillway.lineage.errors import CheckpointError
from spillway.lineage.replication import Base, Fence, Manifest

if TYPE_CHECKING:
    from spillway.checkpoint.versions import Link, Version

__all__ = ["Base", "Fence", "Manifest", "Record", "VersionLog", "Void", "key"]

Record = Fence | Base | Manifest


def key(record: Record) -> str:
    if isinstance(record, Fence):
        return f"fence/{record.epoch}/{record.claimant}"
    if isinstance(record, Base):
        return f"base/{record.epoch}"
    return f"manifest/{record.version.epoch}/{record.version.n}"


class Void(Enum):
    """Why a record does not count."""

    OLD_EPOCH = "a newer epoch was fenced before it"
    OTHER_CLAIMANT = "another claimant had fenced its epoch"
    NO_FENCE = "its epoch was not fenced"
    REPEATED = "it is a duplicate"
    FOREIGN = "it requires a version of a shard that the pipeline does not have"


class VersionLog:
    """One shard's log as far as it was read."""

    history_type = History

    def __init__(self) -> None:
        self.epoch = 0  # of the newest fence
        self.claimant = ""  # who has fenced it
        self.history = self.history_type()  # of the newest epoch with a base
        self.newest: Version = INITIAL  # the newest complete version on the chain
        self.void: Counter[Void] = Counter()
        self._fenced_us: dict[int, int] = {}  # when the epochs on the chain, and the newest, were fenced
        self.gap = False  # whether a fence or a base may be missing: the next base or manifest tells what it said

    @property
    def based(self) -> bool:
        """Whether the newest reign has said what it starts from."""
        return self.history.epoch == self.epoch

    def take(self, record: Record) -> bool:
        """Take the next record; False if it is void. Raises CheckpointError for one that cannot be."""
        void = self.judge(record)
        if void is not None:
            self.void[void] += 1
            return False
        if isinstance(record, Fence):
            self.epoch, self.claimant = record.epoch, record.claimant
            self._fenced_us[record.epoch] = record.at_us
        elif isinstance(record, Base):
            self._fenced_by(record.epoch, record.claimant)
            self._begin(record.version, record.chain)
        else:
            self._fenced_by(record.version.epoch, record.claimant)
            self._complete(record)
        return True

    def recent(self, history: History) -> int:
        """Give the first epoch of a history that the newest one starts from whose link is not old (`LINK_SECONDS`).

        By the times at which the broker appended the fences; one without a time is not old.
        """
        now = self._fenced_us.get(self.epoch, 0)
        for (epoch, _), (following, _) in pairwise(history.links):
            fenced = self._fenced_us.get(following, 0)
            if not fenced or now - fenced <= LINK_SECONDS * 1e6:
                return epoch
        return history.epoch

    def judge(self, record: Record) -> Void | None:
        """Why the next record would not count; None for one that would, or cannot be."""
        epoch = record.version.epoch if isinstance(record, Manifest) else record.epoch
        if epoch < self.epoch:
            return Void.OLD_EPOCH
        if isinstance(record, Fence):
            if epoch > self.epoch:
                return None
            return Void.REPEATED if record.claimant == self.claimant else Void.OTHER_CLAIMANT
        if not epoch or epoch > self.epoch:
            return None if epoch and self.gap else Void.NO_FENCE
        if record.claimant != self.claimant:
            return Void.OTHER_CLAIMANT
        if isinstance(record, Base):
            repeated = self.based and record.version == self.history.base
        else:
            repeated = record.version == self.newest
        return Void.REPEATED if repeated else None

    def _fenced_by(self, epoch: int, claimant: str) -> None:
        if epoch > self.epoch:
            self.epoch, self.claimant = epoch, claimant

    def _begin(self, base: Version, chain: tuple[Link, ...]) -> None:
        if self.based:
            raise CheckpointError(f"{self}: a second base, {base}")
        known = self.history_type(tuple(link for link in chain if link[0] < self.epoch)) if self.gap else self.history
        history = known.begun(self.epoch, base)
        self.gap = False
        if chain != history.links:
            shorter = self.history_type(chain)
            if not shorter.shortens(history):
                raise CheckpointError(f"{self}: the base {base} has another chain, {chain}")
            history = shorter
        self.history = history
        self._fenced_us = {one: self._fenced_us.get(one, 0) for one, _ in chain}
        self.newest = base

    def _complete(self, manifest: Manifest) -> None:
        if not self.based and manifest.chain:  # its base is gone from the log; the chain in the manifest has it
            self._begin(manifest.chain[-1][1], manifest.chain)
        if manifest.chain != self.history.links:
            raise CheckpointError(f"{self}: the manifest of {manifest.version} has another chain, {manifest.chain}")
        if manifest.version.n <= self.newest.n:
            raise CheckpointError(f"{self}: the manifest of {manifest.version} comes after that of {self.newest}")
        self.newest = manifest.version

    def __str__(self) -> str:
        return f"the version log at epoch {self.epoch} of {self.claimant!r}, with {self.history}"
