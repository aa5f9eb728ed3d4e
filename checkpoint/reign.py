"""A primary's reign over a shard: which version is copied, written and told, and in which order.

Every batch, and what was dropped since the one before, is a version. It is *recorded* when the batch has been computed,
and all that the stage sends for it carries its mark. The state is at that version when the batch has *updated* it. Then
it is *copied*, its chunks are *written*, its manifest is appended (*complete*), and in the end it is *durable*, as the
logs say. HAMS, section IV-B and Algorithm 2; the numbers are rules of stateful fault tolerance. Invariants:

* The state stands still while it is copied: an update waits for a copy under way, and for nothing else (NSPB).
* A copy is made when the writer is idle, so the versions recorded meanwhile coalesce: the next manifest covers them
  all. An idle stage's last version is copied and written at once. (Where the mode stops for copies, every version is.)
* A manifest names the batches, what they require and the coverage of exactly the versions up to its own, however far
  recording has gone on (rule 10).
* `Seal` says that everything sent for the versions up to this one is acknowledged: only then may its manifest be
  appended (rule 5). Where outputs are held, the manifest contains them; then what waits for acknowledgement is what
  earlier manifests contained.
* Where batches are logged, an epoch begins with a copy of its base: the log of an epoch builds on its own copies
  alone, as those of older epochs go (rule 4).
* One version is written at a time, and the next one begins when it is durable. What is copied meanwhile takes the place
  of what waits to be written, and its manifest covers both: the newest is never lost. A copy is released, once, when
  another takes its place: before it is written by a newer one, and when it is durable by the next that is (HAMS' three
  places). A rollback is a new reign, which reads what it starts from in the log, whichever member does it.

The driver calls what happens, and does what `take` returns, in its order. Nothing here knows time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from spillway.checkpoint.modes import CHECKPOINT_EVERY, NSPB
from spillway.lineage.marks import Mark, Version, merged

if TYPE_CHECKING:
    from spillway.checkpoint.modes import Mode
    from spillway.lineage.marks import Place
    from spillway.lineage.replication import Batch, InputPlace


T = TypeVar("T")  # what a copy of the state is


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy the state, which is at this version, and call `copied`; no update runs until then."""

    version: Version


@dataclass(frozen=True, slots=True)
class Write(Generic[T]):
    """Write this version's chunks; when all are acknowledged and it is sealed, append its manifest.

    `what` is the copy; None where the version is complete with its record alone (`Mode.logs`): its state then is that
    of `state_n` in the copy written before, and the batches after it.
    """

    version: Version
    what: T | None
    state_n: int
    requires: tuple[Mark, ...]
    batches: tuple[Batch, ...]
    inputs: tuple[InputPlace, ...]


@dataclass(frozen=True, slots=True)
class Seal:
    """Everything sent for the versions up to this one is acknowledged."""

    version: Version


@dataclass(frozen=True, slots=True)
class Emit:
    """Send what was held of the versions up to n."""

    n: int


@dataclass(frozen=True, slots=True)
class Release(Generic[T]):
    """Nobody goes back to this copy any more."""

    what: T


Order = Copy | Write[T] | Seal | Emit | Release[T]


@dataclass(slots=True)
class Recorded:
    """One version, from when its batch was computed until it is durable."""

    batch: Batch
    requires: tuple[Mark, ...]
    inputs: tuple[InputPlace, ...]  # the coverage up to and with this version


class Reign(Generic[T]):
    """One primary's epoch. `base`: the version it starts from."""

    def __init__(
        self, place: Place, epoch: int, base: Version, mode: Mode = NSPB, every: int = CHECKPOINT_EVERY
    ) -> None:
        """`every`: in a mode that logs, how many requests are replayed at most, a batch more or less."""
        self.place = place
        self.epoch = epoch
        self.base = base
        self.mode = mode
        self.recorded = base.n  # the newest version that was recorded
        self.state_n = base.n  # the version that the state in memory is at
        self.durable_n = base.n
        self._captured: tuple[Version, T] | None = None  # the copy that waits to be written
        self._written: tuple[Version, T] | None = None  # the one that is, until its version is durable
        self._kept: T | None = None  # that of the newest durable version
        self._every = every
        self._entries: deque[Recorded] = deque()  # not durable yet, oldest first
        self._updating = False
        self._copying = False
        self._copied_n = base.n  # the newest copy, or what the epoch started from
        self._log_n = base.n  # of a mode that logs: the copy that the log builds on
        self._unlogged: deque[Batch] = deque()  # of a mode that logs: the batches since that copy
        self._stash: tuple[int, T] | None = None  # of a mode that logs: a copy that waits to be written
        self._owes_base = mode.logs and base.n > 0  # whether the log has no copy of this epoch to build on
        self._writing: Version | None = None  # given out by Write, its manifest not acknowledged
        self._sealed = False
        self._complete_n = base.n
        self._pending: dict[int, int] = {}  # messages that are not acknowledged, by version
        self._ahead = 0  # messages of the next version that are acknowledged before it is recorded
        self._resent = 0  # what an earlier reign had promised to send, not acknowledged
        self._orders: list[Order[T]] = []

    # What happens ----------------------------------------------------------------------------------------------

    @property
    def next(self) -> Version:
        """The version that what is sent now belongs to: it is recorded next."""
        return Version(self.epoch, self.recorded + 1)

    @property
    def mark(self) -> Mark:
        return Mark(*self.place, self.next)

    def resend(self, count: int) -> None:
        self._resent += count

    def resent(self) -> None:
        self._resent -= 1
        self._look()

    def record(self, batch: Batch, requires: tuple[Mark, ...], inputs: tuple[InputPlace, ...], sent: int) -> None:
        """Note the version `next`: its batch was computed, or it has drops alone. `sent`: messages to acknowledge."""
        if batch.n != self.recorded + 1:
            raise ValueError(f"version {batch.n} cannot be recorded after {self.recorded}")
        self.recorded += 1
        self._entries.append(Recorded(batch, requires, inputs))
        if sent > self._ahead:
            self._pending[self.recorded] = sent - self._ahead
        self._ahead = 0
        if self.mode.logs:
            self._unlogged.append(batch)

    def acked(self, n: int) -> None:
        """Note that the broker has a message that was sent for version n."""
        if n > self.recorded:
            self._ahead += 1
            return
        self._pending[n] -= 1
        if not self._pending[n]:
            del self._pending[n]
            self._look()

    @property
    def may_update(self) -> bool:
        return not self._copying

    def update_begins(self) -> None:
        if not self.may_update:
            raise ValueError(f"an update of {self.place} begins while the state is copied")
        self._updating = True

    def updated(self) -> None:
        """Note that the state is at the version recorded last (also where that changed nothing)."""
        self._updating = False
        self.state_n = self.recorded
        self._look()

    @property
    def may_compute(self) -> bool:
        """Whether the next batch may be computed; where the mode does not stop for anything, it always may."""
        if self.mode.transacts:
            return self._complete_n >= self.recorded
        return not self.mode.stops or (self._copied_n >= self.state_n and not self._copying)

    def copied(self, version: Version, what: T) -> None:
        self._copying = False
        self._copied_n = version.n
        if self.mode.logs:
            self._stash = version.n, what
        else:
            before, self._captured = self._captured, (version, what)
            if before is not None:
                self._orders.append(Release(before[1]))
        self._look()

    def completed(self, version: Version) -> None:
        """Note that the manifest of the version that was ordered to be written is acknowledged."""
        if version != self._writing:
            raise ValueError(f"{version} is complete, but {self._writing} was being written")
        self._writing = None
        self._complete_n = version.n
        self._settle()  # it may have been read before its acknowledgement came
        if self.mode.holds:
            self._orders.append(Emit(version.n))
        self._look()

    def durable(self, version: Version) -> tuple[InputPlace, ...] | None:
        """Note the newest durable version by the logs; the coverage of it, if that is news."""
        if version.epoch != self.epoch or version.n <= self.durable_n:
            return None
        self.durable_n = version.n
        self._settle()
        inputs = None
        while self._entries and self._entries[0].batch.n <= version.n:
            inputs = self._entries.popleft().inputs
        self._look()
        return inputs

    # What is asked ---------------------------------------------------------------------------------------------

    def requires(self) -> set[Mark]:
        return {mark for entry in self._entries for mark in entry.requires}

    @property
    def idle(self) -> bool:
        return not (self._entries or self._pending or self._resent or self._copying)

    def take(self) -> list[Order[T]]:
        self._look()
        orders, self._orders = self._orders, []
        return orders

    # Inside ----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        if self._copy_due():
            self._copying = True
            self._orders.append(Copy(Version(self.epoch, self.state_n)))
        if self._writing is None:
            self._begin()
        if self._writing is not None and not self._sealed and self.sealable(self._writing):
            self._sealed = True
            self._orders.append(Seal(self._writing))

    def _copy_due(self) -> bool:
        if self._copying or self._updating:
            return False
        if self._owes_base:
            return self._stash is None
        if self.state_n <= self._copied_n:
            return False
        if self.mode.logs:
            requests = sum(len(batch.taken) for batch in self._unlogged)
            return self._stash is None and requests >= self._every
        return self.mode.stops or (self._written is None and self._captured is None)

    def _settle(self) -> None:
        if self._written is not None and self._written[0].n <= min(self._complete_n, self.durable_n):
            before, self._kept, self._written = self._kept, self._written[1], None
            if before is not None:
                self._orders.append(Release(before))

    def _begin(self) -> None:
        if self.mode.logs:
            self._begin_logged()
            return
        if self._written is not None or self._captured is None:
            return
        self._written, self._captured = self._captured, None
        version, what = self._written
        entries = self._since(version.n)
        self._start(version, what, version.n, entries, tuple(entry.batch for entry in entries))

    def _begin_logged(self) -> None:
        if self.recorded <= self._complete_n or self._complete_n > self.durable_n:
            return
        if self._owes_base and self._stash is None:
            return
        version = Version(self.epoch, self.recorded)
        entries = self._since(version.n)
        what = None
        if self._stash is not None:
            (self._log_n, what), self._stash = self._stash, None
            self._owes_base = False
            while self._unlogged and self._unlogged[0].n <= self._log_n:
                self._unlogged.popleft()
        # Those that the copy has, and no manifest yet, are recorded here too: the record has no gaps (rule 10).
        first = self._unlogged[0].n if self._unlogged else version.n + 1
        earlier = [entry.batch for entry in entries if entry.batch.n < first]
        self._start(version, what, self._log_n, entries, (*earlier, *self._unlogged))

    def _start(
        self, version: Version, what: T | None, state_n: int, entries: list[Recorded], batches: tuple[Batch, ...]
    ) -> None:
        self._writing, self._sealed = version, False
        requires = merged(entry.requires for entry in entries)
        self._orders.append(Write(version, what, state_n, requires, batches, entries[-1].inputs))

    def _since(self, n: int) -> list[Recorded]:
        """Give what was recorded after the newest complete version, up to n."""
        return [entry for entry in self._entries if self._complete_n < entry.batch.n <= n]

    def sealable(self, version: Version) -> bool:
        upto = self._complete_n if self.mode.holds else version.n
        return not self._resent and not any(n <= upto for n in self._pending)
