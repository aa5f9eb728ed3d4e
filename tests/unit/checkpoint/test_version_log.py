"""One shard's log: which records count, what they come to, and which keys make compaction harmless (rules 2, 3, 4)."""

import pytest

from spillway.checkpoint.retention import Retention
from spillway.checkpoint.version_log import Base, Fence, Manifest, VersionLog, Void, key
from spillway.checkpoint.versions import INITIAL, History, Version
from spillway.lineage.errors import CheckpointError

FIRST = History(((1, INITIAL),))
SECOND = FIRST.begun(2, Version(1, 2))


def fence(epoch, claimant=None):
    return Fence(epoch, claimant or f"m{epoch}")


def base(history, claimant=None):
    return Base(history.epoch, claimant or f"m{history.epoch}", history.base, history.links)


def manifest(history, n, claimant=None, requires=()):
    return Manifest(Version(history.epoch, n), history.links, tuple(requires), claimant or f"m{history.epoch}")


START = [fence(1), base(FIRST), manifest(FIRST, 1), manifest(FIRST, 2)]
FAILOVER = [*START, fence(2), base(SECOND)]


def read(records):
    log = VersionLog()
    return log, [log.take(record) for record in records]


def test_after_a_fence_records_of_older_epochs_are_void():
    """Rule 3."""
    log, taken = read([*START, fence(2), manifest(FIRST, 3), base(SECOND), manifest(FIRST, 4), manifest(SECOND, 3)])
    assert taken[4:] == [True, False, True, False, True]
    assert log.newest == Version(2, 3)
    assert log.void == {Void.OLD_EPOCH: 2}


def test_of_one_epoch_the_first_fence_counts_and_its_claimants_records():
    log, taken = read(
        [*START, fence(2, "x"), fence(2, "y"), base(SECOND, "y"), manifest(SECOND, 3, "y"), base(SECOND, "x")]
    )
    assert taken[4:] == [True, False, False, False, True]
    assert log.void == {Void.OTHER_CLAIMANT: 3}
    assert log.claimant == "x"


def test_records_of_an_epoch_that_was_not_fenced_are_void():
    log, taken = read([*START, base(SECOND), manifest(SECOND, 3)])
    assert taken[4:] == [False, False]
    assert log.void == {Void.NO_FENCE: 2}
    assert log.history == FIRST


def test_before_the_first_reign_nothing_counts():
    log, taken = read([manifest(FIRST, 1), Manifest(Version(0, 1), (), (), ""), Base(0, "", INITIAL), Fence(0, "m")])
    assert not any(taken)
    assert log.newest == INITIAL


def test_what_was_there_before_is_void():
    log, taken = read([*FAILOVER, base(SECOND), fence(2), manifest(SECOND, 3), manifest(SECOND, 3)])
    assert taken[6:] == [False, False, True, False]
    assert log.void == {Void.REPEATED: 3}


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (base(FIRST.begun(2, Version(1, 1)), "m2"), "a second base"),
        (manifest(SECOND, 2, "m2"), "comes after that of e1.v2"),
        (Manifest(Version(2, 3), FIRST.links, (), "m2"), "another chain"),
        (Manifest(Version(2, 3), (), (), "m2"), "another chain"),
    ],
)
def test_what_no_correct_writer_appends_stops_every_reader(record, says):
    """Rule 16: going on would mean to guess."""
    log, _ = read(FAILOVER)
    with pytest.raises(CheckpointError, match=says):
        log.take(record)


def test_a_base_off_the_chain_stops_every_reader():
    log, _ = read([*FAILOVER, fence(3)])
    with pytest.raises(CheckpointError, match=r"cannot start from e1\.v3"):
        log.take(Base(3, "m3", Version(1, 3), ((1, INITIAL), (3, Version(1, 3)))))
    with pytest.raises(CheckpointError, match="another chain"):
        log.take(Base(3, "m3", Version(1, 2), SECOND.links))


def test_the_chain_in_a_manifest_makes_up_for_a_base_that_is_gone():
    """Rule 1: compaction erases history."""
    log, taken = read([*START, fence(2), manifest(SECOND, 3)])
    assert taken[-1]
    assert log.history == SECOND


# Keys (rule 4) ------------------------------------------------------------------------------------------------------


def test_keys():
    assert key(fence(3, "m7")) == "fence/3/m7"
    assert key(base(SECOND)) == "base/2"
    assert key(manifest(SECOND, 12)) == "manifest/2/12"


def standing(records):
    retention = Retention()
    for record in records:
        retention.appended(record)
    return retention


def test_a_new_owner_tombstones_nothing_before_a_version_of_its_own_is_durable():
    retention = standing([*FAILOVER, manifest(SECOND, 3)])
    assert retention.obsolete(SECOND, Version(1, 2)) == []
    assert retention.obsolete(SECOND, INITIAL) == []
    assert retention.obsolete(SECOND, Version(2, 3)) == ["manifest/1/1", "manifest/1/2"]


def test_what_is_durable_or_newer_stays_and_what_is_off_the_chain_goes():
    records = [*START, manifest(FIRST, 3), fence(2), base(SECOND), *(manifest(SECOND, n) for n in (3, 4, 5))]
    retention = standing([*records, manifest(FIRST, 4)])  # a zombie's
    assert retention.obsolete(SECOND, Version(2, 4)) == [
        "manifest/1/1",
        "manifest/1/2",
        "manifest/1/3",
        "manifest/2/3",
        "manifest/1/4",
    ]


def test_what_was_tombstoned_is_forgotten():
    retention = standing(START)
    assert len(retention) == 2
    retention.tombstoned("manifest/1/1")
    retention.tombstoned("chunk/1")
    assert retention.obsolete(FIRST, Version(1, 2)) == []
    assert len(retention) == 1
