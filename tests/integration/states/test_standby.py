"""A backup's copy over a real broker: what it costs to catch up and to go on, and what it does about missing chunks."""

import time

import numpy as np
import pytest
from confluent_kafka import Producer

from spillway.agents.live.states.standby import StandbyReader
from spillway.checkpoint.logs import Logs
from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import INITIAL
from spillway.lineage.replication import Base, Fence, Manifest
from tests.waiting import Bound

from .conftest import PLACE, STAGE, Told
from .test_log_reader import Writer
from .test_state_writer import CHAIN, Primary


class Backup:
    """Follows the logs of one shard, and applies what is durable by them."""

    def __init__(self, bench):
        self.told = Told()
        self.applied = []
        self.given = []
        self.logs = Logs([PLACE])
        self.standby = bench.keep(
            StandbyReader(
                *(bench.log().through, bench.pipeline, PLACE, self.told.post, self.applied.append, self.told.failed),
                on_missing=lambda version: self.standby.answer(version, self.logs.newest_durable(PLACE)),
            )
        )
        self.reader = bench.reader(self.told, self)

    def records(self, batch):
        for read in batch:
            if isinstance(read.record, (Fence, Base, Manifest)) and self.logs.take(PLACE, read.record):
                self.standby.heard(read.record, self.logs.log(PLACE).history)
        self.standby.durable(self.logs.newest_durable(PLACE))

    def caught_up(self, place):
        self.logs.caught_up(place)
        self.standby.begin()
        self.standby.durable(self.logs.newest_durable(PLACE))

    def fell_behind(self, place):
        self.logs.fell_behind(place)

    def failed(self, error):
        self.told.failed(error)

    def until_at(self, version, seconds=60):
        self.told.until(lambda: self.applied and self.applied[-1].version == version, seconds)
        return self.applied[-1]

    def promote(self):
        self.standby.promote(self.logs.newest_durable(PLACE), self.given.append)
        self.told.until(lambda: self.given)
        return self.given[0]


@pytest.fixture
def reign(bench):
    writer = Writer(bench)
    writer.write(Fence(1, "m"))
    writer.write(Base(1, "m", INITIAL, CHAIN))
    return bench


def test_a_backup_follows_and_takes_over(reign):
    primary, backup = Primary(reign), Backup(reign)
    state = {"w": np.arange(50_000, dtype=np.float32), "step": 0}
    for step in range(10):
        state["w"][step] = -1
        state["step"] = step
        version = primary.write(state).version
        primary.durable(version)
        backup.until_at(version)
    assert backup.applied[-1].copied < 4_096
    given = backup.promote()
    assert given.version == version
    assert given.state["w"].tobytes() == state["w"].tobytes()
    assert given.state["step"] == 9
    assert given.named <= given.present
    assert backup.standby.read_bytes < 300_000  # 200 kB once, then a chunk each


def test_a_shard_without_versions_is_handed_over_too(reign):
    backup = Backup(reign)
    backup.told.until(lambda: backup.logs.log(PLACE).based)
    given = backup.promote()
    assert (given.version, given.state) == (INITIAL, None)


def damage(bench, key, value):
    producer = Producer({"bootstrap.servers": bench.settings.bootstrap})
    producer.produce(f"{bench.pipeline}.{STAGE}.state", value, key, 0)
    producer.flush(90)


@pytest.mark.parametrize("value", [None, b"\0" * 1_024], ids=["missing", "damaged"])
def test_a_chunk_that_is_gone_is_reported_and_nothing_older_is_taken(reign, value):
    primary, backup = Primary(reign), Backup(reign)
    state = {"w": np.arange(5_000, dtype=np.float32)}
    first = primary.write(state).version
    backup.until_at(first)
    version = primary.begin({"w": state["w"] + 1})
    bound = Bound(90)
    while not any(key == b"1/2/3" for key, _ in reign.records("state")):
        assert not bound.over
    damage(reign, b"1/2/3", value)
    primary.writer.outputs_acked(version)
    with pytest.raises(AssertionError, match="the chunk 1/2/3"):
        backup.told.until(lambda: len(backup.applied) > 1, 120)
    assert isinstance(backup.told.error, CheckpointError)
    assert len(backup.applied) == 1


class Sleeper(Backup):
    """A backup that is paused between its version log and the chunks, and is asked about those that are gone."""

    def __init__(self, bench):
        self.kept, self.asleep, self.asked = [], False, []
        super().__init__(bench)
        self.standby._on_missing = self.asked.append

    def caught_up(self, place):
        self.logs.caught_up(place)

    def records(self, batch):
        if self.asleep:
            self.kept += batch
        else:
            super().records(batch)


def test_a_backup_whose_chunks_went_while_it_was_paused_goes_on_with_a_newer_version(reign):
    """It ended with code 1, and told its operator to rewind."""
    primary, backup = Primary(reign, retain=0), Sleeper(reign)
    weights = np.arange(50_000, dtype=np.float32)  # more chunks than are read at once
    first = primary.write({"w": weights}).version
    backup.told.until(lambda: backup.logs.newest_durable(PLACE) == first, 60)
    backup.asleep = True
    for n in (1, 2):
        newest = primary.write({"w": weights + n}).version
        primary.durable(newest)
    bound = Bound(90)
    while not any(value is None for _, value in reign.records("state")):
        assert not bound.over
    backup.standby.begin()
    backup.standby.durable(first)
    backup.told.until(lambda: backup.asked, 60)
    assert (backup.asked, backup.applied) == ([first], [])
    backup.asleep = False
    backup.records(backup.kept)
    backup.told.until(lambda: backup.logs.newest_durable(PLACE) == newest, 60)
    backup.standby.answer(first, backup.logs.newest_durable(PLACE))
    backup.until_at(newest)
    assert backup.promote().state["w"].tobytes() == (weights + 2).tobytes()


def test_a_new_backup_catches_up_with_40_mb_and_goes_on_by_changes(reign, capsys):
    primary = Primary(reign, chunk_bytes=256 << 10)
    state = {f"w{n}": np.random.default_rng(n).random(500_000, np.float32) for n in range(20)}
    version = primary.write(state).version
    backup = Backup(reign)
    began = time.monotonic()
    first = backup.until_at(version, 120)
    took = time.monotonic() - began
    costs = []
    for step in range(10):
        for n in range(20):
            state[f"w{n}"][step * 1_000 : step * 1_000 + 5_000] += 1  # 1 % of the state, in 20 places
        version = primary.write(state).version
        primary.durable(version)
        costs.append(backup.until_at(version))
    began = time.monotonic()
    given = backup.promote()
    promoted = time.monotonic() - began
    median = sorted(costs, key=lambda one: one.seconds)[5]
    with capsys.disabled():
        print(f"\n40 MB in {took:.2f} s ({40 / took:.0f} MB/s), of which applied in {first.seconds * 1e3:.0f} ms")
        print(f"1 % in 20 places, {median.copied / 1e6:.1f} MB of chunks: applied in {median.seconds * 1e3:.1f} ms")
        print(f"promoted in {promoted * 1e3:.0f} ms")
    assert all(given.state[name].tobytes() == array.tobytes() for name, array in state.items())
