"""A backup's copy of its shard's state: what it has applied is told at once."""

from agents.live.stateful.copies import Copies
from agents.live.states.standby import Applied
from checkpoint.logs import Logs
from lineage.marks import INITIAL, Version
from lineage.replication import InputPlace

PLACE = ("s", 0)


class Reader:
    """In place of a thread with a consumer: the test says what it has applied."""

    def __init__(self, applied):
        self.applied = applied

    def begin(self):
        pass


class Told:
    """A copy, what it has told of, and its reader."""

    def __init__(self):
        self.changes, self.covered, readers = [], [], []

        def reader(applied, _missing):
            readers.append(Reader(applied))
            return readers[-1]

        self.copies = Copies(
            PLACE,
            Logs([PLACE]),
            reader=reader,
            read_to_ends=None,
            machine=None,
            covers=self.covered.extend,
            changed=lambda: self.changes.append(self.copies.applied),
            keyed=False,
        )
        (self.reader,) = readers


def test_an_idle_backup_says_what_it_has_applied():
    told = Told()
    assert told.copies.applied == INITIAL
    place = InputPlace(0, 7)
    told.copies.durable(Version(1, 5))
    told.reader.applied(Applied(Version(1, 5), 10, 0.1, (place,)))
    assert told.changes == [Version(1, 5)]
    assert told.covered == [place]


def test_what_a_base_covers_is_needed_until_the_base_is_durable():
    told = Told()
    told.copies.durable(Version(1, 5))
    told.reader.applied(Applied(Version(1, 8), 10, 0.1, (InputPlace(0, 9),)))  # a base: complete, and no more
    assert told.changes == [Version(1, 8)]
    assert told.covered == []
