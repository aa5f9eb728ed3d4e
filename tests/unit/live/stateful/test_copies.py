"""A backup's copy of its shard's state: what it has applied is told at once."""

from __future__ import annotations

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


def test_an_idle_backup_says_what_it_has_applied():
    told, covered, readers = [], [], []

    def reader(applied):
        readers.append(Reader(applied))
        return readers[-1]

    copies = Copies(
        PLACE,
        Logs([PLACE]),
        reader=reader,
        machine=None,
        covers=covered.extend,
        changed=lambda: told.append(copies.applied),
        keyed=False,
    )
    assert copies.applied == INITIAL
    place = InputPlace(0, 7)
    readers[0].applied(Applied(Version(1, 5), 10, 0.1, (place,)))
    assert told == [Version(1, 5)]
    assert covered == [place]
