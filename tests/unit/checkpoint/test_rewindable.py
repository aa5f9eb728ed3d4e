"""Older versions are kept whole as long as an operator may want them."""

from spillway.checkpoint.retention import Rewindable
from spillway.lineage.marks import Version
from spillway.lineage.replication import ChunkKey


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
