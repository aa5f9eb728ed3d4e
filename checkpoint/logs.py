"""All version logs together: which versions are durable, which are dead, and what a primary may start from.

A version's fate, by the log alone (rules 1, 2, 6 and 7; HAMS, Algorithm 2, whose line 8 prints <= and means >=):

* DURABLE: it is on its shard's chain, a manifest at or above it is in the log, and every mark that this manifest and
  the ones before it require is durable. INITIAL always is.
* DEAD: the chain has been cut below it; or a manifest that it needs requires a dead mark. Then its shard has to go back
  (`rollback`, rule 14), and a new base will cut it off.
* OPEN: known, and neither yet. UNREAD: of an epoch that the log, as far as it was read, does not know; or the log was
  not read up to where it ended when reading began; or of one so old that the chain no longer tells of it
  (`spillway.checkpoint.versions`). To both the answer is to wait.

Invariants:

* DURABLE and DEAD are final, and no two readers of the same logs, however far each has read, find one and the other of
  the same mark. A base is never older than a durable version, as its claimant has read all that anyone can have judged
  by; a log that says otherwise raises CheckpointError, for then a released outcome may rest on lost state.
* A manifest that requires a version of a shard which the pipeline does not have counts for nobody, as nobody could ever
  say what became of it: no primary writes one, but one of another spec, or a stranger. Only a claimant may not pass
  over it (`doubtful`): should it be genuine, a new reign would lose what was released by it (rule 16).
* A record that is damaged (`spillway.checkpoint.damage`) leaves its shard as a log does that is not read to its end,
  until it is passed. No claimant gets a candidate meanwhile, so nobody goes on from an older version (rule 16).
* What is missing in a compacted log was durable, or dead, when it went; but only a reader that has also read the base
  by which it was can tell. So of a log that is still being caught up with nothing is found durable, nor dead by what
  it requires. The same goes for a reader that was away for as long as min.compaction.lag.ms (`fell_behind`).

Memory: per shard its chain, and the backlog of complete versions that are not durable. Work: O(1) amortised for each
mark of a manifest, times the shards that wait for the same one; a base looks through all backlogs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from spillway.checkpoint.damage import Damage, DamageError, Damages
from spillway.checkpoint.version_log import Base, Manifest, VersionLog, Void
from spillway.checkpoint.version_log import key as key_of
from spillway.checkpoint.versions import INITIAL
from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import foreign, order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spillway.checkpoint.version_log import Record
    from spillway.checkpoint.versions import Link, Mark, Place, Version


# Complete versions of one shard that are not durable yet, and what each of them waits for.
#
# An entry stands for the manifests up to its version, since the entry before. Invariants:
#
# * A version becomes durable with the first entry at or above it, and entries do so in order: a later version contains
#   the earlier ones, so it rests on what they rest on too.
# * A manifest that asks for nothing new joins the entry before it, as both become durable, or die, in the same moment.
#   So there is at most one entry per manifest that raises the demand on some other shard.
# * An entry asks for a mark only if no mark in the backlog, or durable, is known to contain it (the same epoch, as
#   high).


@dataclass(slots=True)
class Entry:
    """The manifests from n = `first` up to that of `version`. The first one asks; the others ask for nothing more."""

    first: int
    version: Version
    asks: tuple[Mark, ...]
    met: int = 0  # how many of `asks` are known to be durable


class Backlog:
    """The entries of one shard, oldest first."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._asked: dict[tuple[str, int, int], int] = {}  # the highest n asked for, by the order of marks

    @property
    def last(self) -> Version | None:
        return self._entries[-1].version if self._entries else None

    def append(self, version: Version, requires: Iterable[Mark]) -> None:
        """Add a complete version, which rests on these marks and on all that is in the backlog."""
        asks = tuple(mark for mark in requires if self._asked.get(order(mark), 0) < mark.version.n)
        for mark in asks:
            self._asked[order(mark)] = mark.version.n
        if asks or not self._entries:
            self._entries.append(Entry(version.n, version, asks))
        else:
            self._entries[-1].version = version

    def waits_for(self, durable: Callable[[Mark], bool]) -> Mark | None:
        """Give the first mark that the oldest entry waits for; None if it waits for none."""
        entry = self._entries[0]
        while entry.met < len(entry.asks):
            mark = entry.asks[entry.met]
            if not durable(mark):
                return mark
            entry.met += 1
        return None

    def pop(self) -> Version:
        """Take out the oldest entry; give its version."""
        version = self._entries.popleft().version
        if not self._entries:
            self._asked.clear()
        return version

    def cut_at(self, base: Version) -> None:
        entries = self._entries
        while entries and entries[-1].first > base.n:
            entries.pop()
        if entries and entries[-1].version.n > base.n:
            entries[-1].version = base
        self._recount()

    def drop_dead(self, dead: Callable[[Mark], bool]) -> bool:
        """Drop the first entry that asks for a dead mark, and all above it; say whether there was one."""
        entries = self._entries
        for index, entry in enumerate(entries):
            if any(map(dead, entry.asks)):
                while len(entries) > index:
                    entries.pop()
                self._recount()
                return True
        return False

    def _recount(self) -> None:
        self._asked = {order(mark): mark.version.n for entry in self._entries for mark in entry.asks}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class Fate(Enum):
    """What is known of a version, or of all that a message rests on."""

    DURABLE = "durable"
    DEAD = "dead"
    OPEN = "open"
    UNREAD = "unread"


class _Shard:
    """One shard: its log, and how far it is durable."""

    def __init__(self, log: VersionLog) -> None:
        self.log = log
        self.durable: Version = INITIAL  # the newest durable one; everything below it on the chain is durable too
        self.backlog = Backlog()
        self.doomed: int | None = None  # versions of the newest epoch from this n on are dead by what they require
        self.reached = False  # whether the log was read up to where it ended when reading began
        self.damages = Damages()
        self.standing: dict[bytes, tuple[Mark, ...]] = {}  # what the manifests in the log require, by key
        self.foreign: Version = INITIAL  # of the newest manifest that requires what the pipeline does not have
        self.awaited_by: set[Place] = set()  # whose oldest entry waits for a mark of this shard

    @property
    def current(self) -> bool:
        return self.reached and not self.damages

    @property
    def candidate(self) -> Version:
        return self.backlog.last or self.durable


class Logs:
    """The stateful shards of a pipeline. Answers the gate, backups, claimants and stages alike."""

    log_type = VersionLog

    def __init__(self, places: Iterable[Place]) -> None:
        self._shards = {place: _Shard(self.log_type()) for place in places}
        self.on_unread: Callable[[], object] = bool  # called when a mark is judged of an epoch that is still to be read

    # What was read ---------------------------------------------------------------------------------------------

    def take(self, place: Place, record: Record | Damage) -> bool:
        """Take the next record of a shard's log; False if it is void. Raises CheckpointError for one that cannot be."""
        shard = self._at(place)
        log = shard.log
        if isinstance(record, Damage):
            shard.damages.add(record, log.epoch)
            log.gap = log.gap or not record.key.startswith(b"manifest/")
            return False
        if isinstance(record, Manifest) and foreign(record.requires, self._shards) is not None:
            self._refuse(shard, record)
            return False
        before = log.history
        if not log.take(record):
            return False
        if log.history is not before:
            self._based(place, shard)
        if isinstance(record, Manifest) and shard.doomed is None:
            version = record.version
            # An earlier version of its own chain is before it in the backlog anyhow.
            others = [m for m in record.requires if m.place != place or not log.history.contains(version, m.version)]
            shard.backlog.append(version, others)
            if record.requires:
                shard.standing[key_of(record).encode()] = record.requires
            if any(map(self.dead, others)):
                self._bury([place])
            self._advance([place])
        if shard.damages and isinstance(record, (Base, Manifest)):
            shard.damages.counted(record)
            self._known_again(place)
        return True

    def tombstoned(self, place: Place, key: bytes) -> None:
        shard = self._at(place)
        shard.standing.pop(key, None)
        if shard.damages:
            shard.damages.tombstoned(key)
            self._known_again(place)

    def accept(self, place: Place) -> list[Damage]:
        """Go on without the records that are damaged, from the newest version that can be read; give them.

        For an operator who has decided to (rule 16), and tombstones them in the end: nobody else goes on before that.
        """
        passed = self._at(place).damages.accept()
        self._known_again(place)
        return passed

    def caught_up(self, place: Place) -> None:
        """Note that a shard's log was read up to the end that it had when reading began."""
        shard = self._at(place)
        if not shard.reached:
            shard.reached = True
            self._known_again(place)

    def fell_behind(self, place: Place) -> None:
        """Note that the reader was away so long that what it has still to read may have been compacted meanwhile.

        Nothing more is found durable or dead until `caught_up` with where the log ends now.
        """
        self._at(place).reached = False

    # What is known ---------------------------------------------------------------------------------------------

    def fate(self, mark: Mark) -> Fate:
        """Judge one mark. Raises CheckpointError for a shard that the pipeline does not have."""
        version = mark.version
        if version == INITIAL:
            return Fate.DURABLE
        shard = self._at(mark.place)
        history = shard.log.history
        if history.beyond(version) or history.forgotten(version):
            self.on_unread()
            return Fate.UNREAD
        if not history.alive(version):
            return Fate.DEAD
        if version.n <= shard.durable.n:
            return Fate.DURABLE
        if shard.doomed is not None and version.n >= shard.doomed:
            return Fate.DEAD
        return Fate.OPEN if shard.current else Fate.UNREAD

    def durable(self, mark: Mark) -> bool:
        """Whether a version will survive every failover; once true, always."""
        return self.fate(mark) is Fate.DURABLE

    def dead(self, mark: Mark) -> bool:
        """Whether no recovery will reproduce a version; once true, always."""
        return self.fate(mark) is Fate.DEAD

    # What roles are decided by ---------------------------------------------------------------------------------

    def log(self, place: Place) -> VersionLog:
        return self._at(place).log

    def newest_durable(self, place: Place) -> Version:
        """Give what a primary keeps to go back to, and a backup has applied."""
        return self._at(place).durable

    def candidate(self, place: Place) -> Version:
        """Give the newest version that is complete and not dead: the base of a claimant that has just read its fence.

        Raises CheckpointError where the log was not caught up with, DamageError where it is damaged: a newer one may
        be in it.
        """
        shard = self._at(place)
        if shard.damages.first is not None:
            raise DamageError(shard.damages.first)
        if not shard.reached:
            raise CheckpointError(f"the version log of {place[0]}/{place[1]} was not read to its end before a claim")
        return shard.candidate

    def chain(self, place: Place, epoch: int, base: Version) -> tuple[Link, ...]:
        """Give the chain of an epoch that starts from `base`, as its claimant appends it once it has read its fence.

        Without the links that nobody can need any more (`spillway.checkpoint.versions`). Raises CheckpointError for a
        base that is not alive.
        """
        shard = self._at(place)
        history = shard.log.history.begun(epoch, base)
        if not all(each.current for each in self._shards.values()):
            return history.links
        required = (mark for each in self._shards.values() for marks in each.standing.values() for mark in marks)
        needed = {mark.version.epoch for mark in required if mark.place == place}
        return history.shortened(needed, min(shard.log.recent(history), shard.durable.epoch or 1)).links

    def rollback(self, place: Place) -> Version | None:
        """Give the version that a shard has to go back to as its newer ones are dead; None while none are."""
        shard = self._at(place)
        return None if shard.doomed is None else shard.candidate

    def damage(self, place: Place) -> Damage | None:
        """Give what is damaged in a shard's log where a newest version may stand; mostly None.

        None as well while the log has not been read to its end: what is read next may pass it.
        """
        shard = self._at(place)
        return shard.damages.first if shard.reached else None

    def doubtful(self, place: Place) -> Version | Damage | None:
        """Give a record that may stand for a version above the candidate, and nobody can judge; mostly None.

        It is damaged, or a manifest that requires what the pipeline does not have.
        """
        shard = self._at(place)
        if shard.damages:
            return shard.damages.first
        above = shard.foreign.n > shard.candidate.n and shard.log.history.alive(shard.foreign)
        return shard.foreign if above else None

    def waiting(self, place: Place) -> int:
        return len(self._at(place).backlog)

    # Inside ----------------------------------------------------------------------------------------------------

    def _at(self, place: Place) -> _Shard:
        shard = self._shards.get(place)
        if shard is None:
            raise CheckpointError(
                f"the pipeline has no stateful shard {place[0]}/{place[1]}: was the message written "
                "by another pipeline file?"
            )
        return shard

    @staticmethod
    def _refuse(shard: _Shard, manifest: Manifest) -> None:
        void = shard.log.judge(manifest)
        if void is None and manifest.chain == shard.log.history.links:
            shard.foreign = max(shard.foreign, manifest.version, key=lambda version: version.n)
        shard.log.void[void or Void.FOREIGN] += 1

    def _known_again(self, place: Place) -> None:
        shard = self._at(place)
        if shard.current:
            self._bury(list(self._shards))
            self._advance([place, *self._woken(shard)])

    def _based(self, place: Place, shard: _Shard) -> None:
        base = shard.log.history.base
        if base.n < shard.durable.n:
            raise CheckpointError(
                f"{place[0]}/{place[1]}: epoch {shard.log.epoch} starts from {base}, older than the durable "
                f"{shard.durable}; released outcomes may depend on lost state: stop the pipeline and compare the "
                "members' states"
            )
        shard.backlog.cut_at(base)
        if shard.doomed is not None and shard.doomed > base.n:
            shard.doomed = None
        if shard.doomed is None and shard.candidate.n < base.n:
            shard.backlog.append(base, ())  # its manifest is gone, so it was durable with all it rests on
        self._bury(list(self._shards))
        self._advance([place, *self._woken(shard)])

    def _bury(self, places: list[Place]) -> None:
        while places:
            shard = self._shards[places.pop()]
            if shard.current and shard.backlog.drop_dead(self.dead):
                shard.doomed = shard.candidate.n + 1
                places = list(self._shards)

    def _advance(self, places: list[Place]) -> None:
        while places:
            place = places.pop()
            shard = self._shards[place]
            before = shard.durable
            while shard.current and shard.backlog:
                awaited = shard.backlog.waits_for(self.durable)
                if awaited is not None:
                    self._shards[awaited.place].awaited_by.add(place)
                    break
                shard.durable = shard.backlog.pop()
            if shard.durable is not before:
                places += self._woken(shard)

    @staticmethod
    def _woken(shard: _Shard) -> set[Place]:
        woken, shard.awaited_by = shard.awaited_by, set()
        return woken
