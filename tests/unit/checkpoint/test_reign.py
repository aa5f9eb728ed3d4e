"""A reign under random orders of events: what is written when, and what a manifest names."""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from spillway.checkpoint.modes import MODES, Mode
from spillway.checkpoint.reign import Copy, Emit, Reign, Release, Seal, Write
from spillway.lineage.marks import INITIAL, Mark, Version
from spillway.lineage.replication import Batch, InputPlace, InputRecord

PLACE = ("learn", 0)


class Played:
    """A primary whose threads and broker take a random time each. The state is the list of batches that changed it."""

    reign_type: type[Reign[Any]] = Reign

    def __init__(self, mode: Mode, seed: int, batches: int) -> None:
        self.random = random.Random(seed)
        self.mode = mode
        self.reign = self.reign_type(PLACE, 1, INITIAL, mode, every=3)
        self.state: list[int] = []
        self.left = batches
        self.computing = self.updating = False
        self.due = False  # computed, its update not begun
        self.copying: tuple[Version, list[int]] | None = None
        self.flights: deque[int] = deque()  # versions of messages under way
        self.held: list[int] = []
        self.acked: dict[int, int] = {}
        self.sent: dict[int, int] = {}
        self.writing: Write[Any] | None = None
        self.chunks_there = self.sealed = False
        self.manifests: list[Write[Any]] = []
        self.complete: Version | None = None
        self.copies: list[list[int]] = []
        self.released: list[list[int]] = []

    def run(self) -> None:
        for _ in range(20_000):
            self.obey()
            moves = self.moves()
            if not moves:
                return
            self.random.choice(moves)()
        raise AssertionError("it does not end")

    def moves(self) -> list[Callable[[], None]]:
        """What may happen now."""
        idle = not (self.computing or self.due or self.updating)
        may = {
            self._ack: self.flights,
            self._compute: idle and self.left and self.reign.may_compute,
            self._copied: self.copying is not None,
            self._durable: self.complete is not None,
            self._manifest: self.writing is not None and self.chunks_there and self.sealed,
            self._record: self.computing,
            self._store: self.writing is not None and not self.chunks_there,
            self._update: self.due and self.reign.may_update,
            self._updated: self.updating,
        }
        return [move for move, possible in may.items() if possible]

    def _compute(self) -> None:
        self.left -= 1
        self.computing = True

    def _record(self) -> None:
        self.computing = False
        n = self.reign.next.n
        count = self.random.randint(0, 3)
        requires = (Mark("before", 0, Version(1, n)),)
        self.reign.record(Batch(n, (InputRecord(f"q{n}", 0, n),)), requires, (InputPlace(0, n),), count)
        self.sent[n] = count
        (self.held if self.mode.holds else self.flights).extend([n] * count)
        self.due = True

    def _update(self) -> None:
        assert self.copying is None, "the state changes while it is copied"
        self.due = False
        self.updating = True
        self.reign.update_begins()
        self.state.append(self.reign.recorded)

    def _updated(self) -> None:
        self.updating = False
        self.reign.updated()

    def _copied(self) -> None:
        assert self.copying is not None
        (version, at), self.copying = self.copying, None
        assert self.state == at, "the state changed while it was copied"
        self.copies.append(list(at))
        self.reign.copied(version, self.copies[-1])

    def _ack(self) -> None:
        n = self.flights.popleft()
        self.acked[n] = self.acked.get(n, 0) + 1
        self.reign.acked(n)

    def _store(self) -> None:
        self.chunks_there = True

    def _manifest(self) -> None:
        write, self.writing = self.writing, None
        assert write is not None
        upto = write.version.n if not self.mode.holds else (self.manifests[-1].version.n if self.manifests else 0)
        for n in range(1, upto + 1):
            assert self.acked.get(n, 0) == self.sent[n], f"the manifest of {write.version} before the outputs of {n}"
        self.manifests.append(write)
        self.reign.completed(write.version)
        self.complete = write.version

    def _durable(self) -> None:
        version, self.complete = self.complete, None
        assert version is not None
        inputs = self.reign.durable(version)
        assert inputs == (InputPlace(0, version.n),)

    def obey(self) -> None:
        for order in self.reign.take():
            if isinstance(order, Copy):
                assert not self.updating
                assert order.version.n == len(self.state)
                self.copying = order.version, list(self.state)
            elif isinstance(order, Write):
                assert self.writing is None
                self.writing, self.chunks_there, self.sealed = order, False, False
            elif isinstance(order, Seal):
                self.sealed = True
            elif isinstance(order, Emit):
                self.flights.extend(n for n in self.held if n <= order.n)
                self.held = [n for n in self.held if n > order.n]
            elif isinstance(order, Release):
                self.released.append(order.what)


@pytest.mark.parametrize("mode", MODES.values(), ids=list(MODES))
@pytest.mark.parametrize("seed", range(40))
def test_all_that_was_recorded_becomes_durable_once_and_in_order(mode: Mode, seed: int) -> None:
    played = Played(mode, seed, batches=12)
    played.run()
    assert played.reign.recorded == 12
    assert played.reign.durable_n == 12
    assert not played.held
    assert not played.flights
    assert sorted(played.released) == ([] if mode.logs else played.copies[:-1]), "each once, but for the durable one's"
    told = [batch.n for write in played.manifests for batch in write.batches]
    if mode.logs:
        complete = 0
        for write in played.manifests:  # what a recovery computes again, and what no manifest before has recorded
            first = min(write.state_n, complete) + 1
            assert [batch.n for batch in write.batches] == list(range(first, write.version.n + 1))
            complete = write.version.n
        assert set(told) == set(range(1, 13))
        assert any(write.what is not None for write in played.manifests)
    else:
        assert told == list(range(1, 13))
        for write in played.manifests:
            assert write.what == list(range(1, write.version.n + 1)), "a manifest with another version's state"
    required = [mark.version.n for write in played.manifests for mark in write.requires]
    assert required == [write.version.n for write in played.manifests], "the newest of each, and none left out"


def applied(reign: Reign[str], n: int) -> None:
    """Record and apply a batch, and copy the state if that is due."""
    reign.record(Batch(n), (), (), 0)
    reign.update_begins()
    reign.updated()
    for order in reign.take():
        if isinstance(order, Copy):
            reign.copied(order.version, f"state {order.version.n}")


def test_a_slow_writer_makes_versions_coalesce() -> None:
    reign: Reign[str] = Reign(PLACE, 1, INITIAL)
    for n in range(1, 6):
        applied(reign, n)
    assert reign.take() == []
    reign.completed(Version(1, 1))
    assert reign.take() == []
    reign.durable(Version(1, 1))
    assert reign.take() == [Copy(Version(1, 5))]


def test_a_version_may_be_read_as_durable_before_its_acknowledgement_comes() -> None:
    """Found by a schedule: the writer waited for ever, as nobody told it again that the version was durable."""
    reign: Reign[str] = Reign(PLACE, 1, INITIAL)
    for n in (1, 2):
        applied(reign, n)
    reign.take()
    assert reign.durable(Version(1, 1)) == ()
    assert reign.take() == []
    reign.completed(Version(1, 1))
    assert reign.take() == [Copy(Version(1, 2))]


def test_a_logging_epoch_begins_with_a_copy_of_its_base() -> None:
    """Found by a schedule: its log built on chunks of an older epoch, which a new one may tombstone (rule 4)."""
    reign: Reign[str] = Reign(PLACE, 2, Version(1, 7), MODES["lineage-stash"], every=100)
    assert reign.take() == [Copy(Version(2, 7))]
    reign.record(Batch(8), (), (), 0)
    assert reign.take() == []
    reign.copied(Version(2, 7), "base")
    write, seal = reign.take()
    assert isinstance(write, Write)
    assert (write.what, write.state_n, write.batches) == ("base", 7, (Batch(8),))
    assert seal == Seal(Version(2, 8))
