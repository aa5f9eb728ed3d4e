"""Three places: the newest is never lost, what is durable stays until a newer one is, and two places would not do."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from spillway.checkpoint.reign import Held, Slots
from spillway.checkpoint.retention import Rewindable
from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import Version
from spillway.lineage.replication import ChunkKey


class TwoSlots(Slots):
    """A primary that writes over what is durable."""

    __slots__ = ()

    def begin(self):
        begun = super().begin()
        if begun is not None:
            self.durable = begun
        return begun


EVENTS = st.lists(st.sampled_from(["capture", "begin", "complete", "durable"]), max_size=60)


def run(slots, events):
    """Drive a primary; check the invariants against what its log would say."""
    n, durable, newest = 0, 0, 0
    alive, released = {0}, []
    for event in events:
        if event == "capture":
            n = max(n, newest) + 1
            newest = n
            alive.add(n)
            released += [slots.capture(Held(Version(1, n), n))]
        elif event == "begin":
            slots.begin()
        elif event == "complete" and slots.written is not None:
            slots.completed(slots.written.version)
        elif event == "durable" and slots.written is not None and slots.complete:
            durable = slots.written.version.n
            released += [slots.made_durable(slots.written.version)]
        gone = [held.what for held in released if held is not None]
        places = [held.what for held in (slots.durable, slots.written, slots.captured) if held is not None]
        assert slots.newest.what == newest, "the newest is never lost"
        assert slots.durable.version.n == durable
        assert places == sorted(set(places))
        assert len(gone) == len(set(gone)), "released once"
        assert alive == {*gone, *places}, "and nothing leaks"


@given(EVENTS)
def test_the_newest_is_kept_and_so_is_what_is_durable(events):
    run(Slots(Held(Version(1, 0), 0)), events)


def test_two_places_lose_what_is_durable():
    @settings(phases=[Phase.generate], database=None, max_examples=100)
    @given(EVENTS)
    def driven(events):
        run(TwoSlots(Held(Version(1, 0), 0)), events)

    with pytest.raises(AssertionError):
        driven()


def test_versions_coalesce_while_one_is_written():
    slots = Slots()
    slots.capture(Held(Version(1, 1), "one"))
    assert slots.begin().what == "one"
    assert slots.capture(Held(Version(1, 2), "two")) is None
    assert slots.capture(Held(Version(1, 3), "three")).what == "two"
    assert slots.begin() is None  # one at a time
    slots.completed(Version(1, 1))
    assert slots.begin() is None  # complete, but not durable yet
    assert slots.made_durable(Version(1, 0)) is None
    assert slots.made_durable(Version(1, 1)) is None
    assert slots.durable.what == "one"
    assert slots.begin().what == "three"


def test_what_cannot_be_is_refused():
    slots = Slots(Held(Version(1, 5), ""))
    with pytest.raises(CheckpointError):
        slots.capture(Held(Version(2, 5), ""))
    with pytest.raises(CheckpointError):
        slots.completed(Version(2, 6))


# Older versions are kept whole as long as an operator may want them.


def v(n):
    return Version(2, n)


def keys(n):
    return frozenset({ChunkKey(2, n, 0)})


def test_the_newest_versions_before_the_durable_one_are_kept():
    kept = Rewindable(2)
    for n in range(1, 6):
        kept.complete(v(n), keys(n))
    assert kept.durable(v(4)) == {v(2): keys(2), v(3): keys(3)}
    assert kept.durable(v(5)) == {v(3): keys(3), v(4): keys(4)}


def test_none_are_kept_where_none_are_wanted():
    kept = Rewindable(0)
    kept.complete(v(1), keys(1))
    kept.complete(v(2), keys(2))
    assert kept.durable(v(2)) == {}


def test_the_base_of_the_reign_counts():
    kept = Rewindable(1)
    base = Version(1, 7)
    kept.complete(base, keys(1))
    kept.complete(v(8), keys(8))
    assert kept.durable(v(8)) == {base: keys(1)}
    kept.complete(v(9), keys(9))
    assert kept.durable(v(9)) == {v(8): keys(8)}
