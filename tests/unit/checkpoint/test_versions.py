"""Histories: what is alive, what is cut off, what cannot be said yet (rules 1 and 7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.checkpoint.versions import INITIAL, History, Version
from spillway.lineage.errors import CheckpointError


def v(epoch, n):
    return Version(epoch, n)


FIRST = History(((1, INITIAL),))
SECOND = FIRST.begun(2, v(1, 8))


@pytest.mark.parametrize(
    ("version", "alive", "cut"),
    [
        (v(1, 1), True, False),
        (v(1, 8), True, False),  # rule 7: an older epoch's output of a version that was kept must be used
        (v(1, 9), False, True),  # beyond the base
        (v(2, 9), True, False),  # rule 1: n repeats after a failover, and the epoch tells them apart
        (v(2, 8), False, True),  # nobody generated a version at or below the base of its epoch
        (v(3, 1), False, False),  # of an epoch that was not reached nothing can be said
    ],
)
def test_the_base_of_an_epoch_says_what_is_alive_and_what_is_cut_off(version, alive, cut):
    assert (SECOND.alive(version), SECOND.cut(version)) == (alive, cut)
    assert FIRST.alive(v(1, 9))
    assert SECOND.beyond(v(3, 1))


def test_a_later_version_of_the_chain_contains_an_earlier_one():
    assert SECOND.contains(v(2, 9), v(1, 8))
    assert not SECOND.contains(v(1, 8), v(2, 9))
    assert not SECOND.contains(v(2, 10), v(1, 9))


def test_an_epoch_starts_from_what_is_alive():
    with pytest.raises(CheckpointError, match=r"epoch 3 cannot start from e1\.v9"):
        SECOND.begun(3, v(1, 9))
    with pytest.raises(CheckpointError, match="epoch 2 cannot follow epoch 2"):
        SECOND.begun(2, v(1, 8))


@pytest.mark.parametrize(
    "links",
    [
        ((1, v(1, 0)),),
        ((1, v(0, 3)),),
        ((2, INITIAL), (1, v(2, 3))),
        ((1, INITIAL), (2, v(3, 3))),
        ((1, INITIAL), (2, INITIAL)),
        ((1, INITIAL), (2, v(1, 5)), (3, v(2, 5))),
        ((1, INITIAL), (2, v(1, 5)), (3, v(2, 4))),
    ],
)
def test_links_that_do_not_meet_are_no_history(links):
    with pytest.raises(CheckpointError, match="not a valid history of a shard"):
        History(links)


def test_histories_are_compared_by_their_links():
    assert History(SECOND.links) == SECOND
    assert hash(History(SECOND.links)) == hash(SECOND)
    assert SECOND != FIRST
    assert SECOND != "History"


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5), st.integers(0, 10)), max_size=12))
def test_alive_is_to_be_an_ancestor_along_random_histories(reigns):
    """Each reign skips some epochs, starts from some alive version, and makes some versions."""
    history, epoch = History(), 0
    parent = {}  # version -> the one it came from
    alive = [INITIAL]
    was_cut = set()
    for skip, made, back in reigns:
        epoch += skip
        base = alive[-1 - back % len(alive)]
        history = history.begun(epoch, base)
        before = base
        for n in range(base.n + 1, base.n + 1 + made):
            parent[v(epoch, n)] = before
            before = v(epoch, n)
        alive = [before]
        while alive[0] != INITIAL:
            alive.insert(0, parent[alive[0]])
        for version in parent:
            assert history.alive(version) == (version in alive)
            assert history.cut(version) == (version not in alive)
            if version in was_cut:
                assert history.cut(version), "what is cut off stays so"
            if history.cut(version):
                was_cut.add(version)
        assert History(history.links) == history
