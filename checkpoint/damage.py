"""Damage in a shard's version log: records that cannot be read, and how the shard comes to go on (rule 16).

Where a record cannot be read, a newest version, or the fence that makes others void, may have stood; so nothing more of
its shard is found durable, or dead by what it requires, and no reign begins. Invariants:

* A damaged *manifest* is passed once its key is tombstoned: the owner of an epoch does so when a version above it is
  durable, and whoever goes back to an older version on purpose does so too. A base alone does not pass it, as what it
  requires is in no other record.
* A damaged *fence* is passed with the next base or manifest of a later epoch than any that was known before it, a
  damaged *base* with one of the same epoch, too: each has claimant and chain, which are all that was lost.
* Any other record, such as a stranger's, is passed like a manifest: by a tombstone of its key, or by going back.
"""

from __future__ import annotations

from typing import NamedTuple

from spillway.lineage.errors import CheckpointError
from spillway.lineage.replication import Base, Manifest


class Damage(NamedTuple):
    """A record of a version log that cannot be read, or stands under a key that is not its own."""

    key: bytes  # that it stands under
    where: str  # topic, partition and offset, in words
    why: str

    @property
    def skeleton(self) -> bool:
        return self.key.startswith((b"fence/", b"base/"))


class DamageError(CheckpointError):
    """A shard's version log is damaged where a newest version may stand."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(
            f"{damage.where}, under the key {damage.key.decode(errors='replace')!r:.80}, is damaged: {damage.why}. It "
            "may be the newest version, so no member continues from an older one. Use another member's copy (a "
            "running primary replaces the record with its next durable version). If no member has one, rewind to an "
            "older version (spillway state rewind). If another program wrote the record, remove it with a tombstone "
            "for its key"
        )


class Damages:
    """What is damaged in one shard's log and was not passed yet."""

    def __init__(self) -> None:
        self._found: dict[bytes, tuple[Damage, int]] = {}  # by key: and from which epoch on it is passed by others

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def first(self) -> Damage | None:
        return next((damage for damage, _ in self._found.values()), None)

    def add(self, damage: Damage, epoch: int) -> None:
        """Note one; `epoch`: the newest that was known before it."""
        self._found[damage.key] = damage, epoch if damage.key.startswith(b"base/") else epoch + 1

    def tombstoned(self, key: bytes) -> None:
        self._found.pop(key, None)

    def counted(self, record: Base | Manifest) -> None:
        epoch = record.epoch if isinstance(record, Base) else record.version.epoch
        self._found = {key: found for key, found in self._found.items() if not found[0].skeleton or epoch < found[1]}

    def accept(self) -> list[Damage]:
        found, self._found = self._found, {}
        return [damage for damage, _ in found.values()]
