"""A backup's copy over a real broker: how it is kept up, and handed over."""

import numpy as np
import pytest

from spillway.agents.live.states.standby import StandbyReader
from spillway.checkpoint.logs import Logs
from spillway.lineage.marks import INITIAL
from spillway.lineage.replication import Base, Fence, Manifest

from .conftest import PLACE, Told
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
