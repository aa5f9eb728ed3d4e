"""A backup that reads too late for what was compacted goes on with a newer version; damage alone ends it (rule 16)."""

from types import SimpleNamespace

import numpy as np
import pytest

from spillway.agents.live.stateful.copies import Copies
from spillway.agents.live.states import standby as module
from spillway.agents.live.states.standby import StandbyReader
from spillway.checkpoint.assembly import ChunkError
from spillway.checkpoint.chunks import encode_key
from spillway.checkpoint.logs import Logs
from spillway.lineage.marks import INITIAL, Version
from spillway.lineage.ports import Record
from spillway.lineage.replication import Base, Fence, Manifest
from tests.unit.checkpoint.test_standby import Shard

PLACE = ("s", 0)
LINKS = ((1, INITIAL),)


class Log:
    """The state topic as compaction has left it, read from its start by whoever follows it."""

    def __init__(self, topic):
        self.topic, self.post = topic, None
        self.followed = self.at = 0
        self.waiting = []  # whom to tell when all is read

    def through(self, post):
        self.post = post
        return self

    def follow(self, slot, start, accept, **_told):
        assert (slot, start) == (("p.s.state", 0), None)
        self.accept, self.at = accept, 0
        self.followed += 1
        return SimpleNamespace(when_read=self.waiting.append, stop=bool)

    def read(self):
        found, self.at = self.topic[self.at :], len(self.topic)
        left = {key: offset for offset, (key, _) in enumerate(self.topic)}
        records = [
            Record("p.s.state", 0, 0, 0, log_append=True, key=encode_key(key), value=value, headers=())
            for key, value in found
            if left[key] >= 0 and value is not None
        ]
        waiting = self.waiting.copy()
        self.waiting.clear()
        self.post(self.accept, records)
        for then in waiting:
            self.post(then, self.at)


class Thread:
    """In place of a thread: what it posts is called at once."""

    def __init__(self, _name, _run, _post, _failed):
        self.stopped = False

    def start(self):
        pass

    @staticmethod
    def tell(callback, *arguments):
        callback(*arguments)


class World:
    """A shard whose primary goes on, its logs, and a backup; its version log is read when the test says so."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(module, "Worker", Thread)
        self.shard, self.logs, self.unread, self.asked = Shard(), Logs([PLACE]), [], []
        self.log = Log(self.shard.topic)
        self.copies = Copies(
            PLACE,
            self.logs,
            reader=self._reader,
            read_to_ends=self.asked.append,
            machine=None,
            covers=lambda _places: None,
            changed=lambda: None,
            keyed=False,
        )
        self.logs.caught_up(PLACE)
        self.unread += [Fence(1, "m"), Base(1, "m", INITIAL, LINKS)]
        self.hear()

    def _reader(self, applied, missing):
        self.reader = StandbyReader(self.log.through, "p", PLACE, None, applied, None, on_missing=missing)
        self.reader._standby.held._spare.most = 0
        self.reader._follow()
        return self.reader

    def write(self, state):
        """A complete version, which nobody has read of yet."""
        manifest = self.shard.write(state)
        fields = {name: getattr(manifest, name) for name in ("contents", "spilled", "digest")}
        self.unread.append(Manifest(manifest.version, LINKS, (), "m", **fields))
        return manifest.version

    def hear(self):
        for record in self.unread:
            counts = self.logs.take(PLACE, record)
            self.copies.heard(SimpleNamespace(record=record), counts=counts)
        self.unread.clear()
        if self.copies._begun:
            self.copies.durable(self.logs.newest_durable(PLACE))
        else:
            self.copies._begun, self.copies._durable = True, INITIAL

    def answer(self):
        """Read the logs to their ends, as was asked for."""
        (then,) = self.asked
        self.hear()
        then()

    def compact(self):
        """What is tombstoned is gone from the state topic, and what is gone was never there for who reads now."""
        last = dict(self.shard.topic)
        self.shard.topic[:] = [(key, value) for key, value in last.items() if value is not None]
        self.log.at = 0

    def rounds(self, count=8):
        for _ in range(count):
            self.log.read()
            self.reader._round()


def state(n):
    return {"w": np.full(100, n, np.float32)}


def test_a_backup_that_wakes_after_compaction_starts_over_from_a_newer_version(monkeypatch):
    """It ended with code 1 and told its operator to rewind."""
    world = World(monkeypatch)
    world.write(state(1))
    world.hear()  # it knows of e1.v1, and is paused before it has read the chunks
    for n in (2, 3):
        world.shard.durable(world.write(state(n)))
    world.compact()
    world.rounds()
    assert world.copies.applied == INITIAL
    world.answer()  # as its chunks are gone
    world.rounds()
    assert world.copies.applied == Version(1, 3)
    assert world.reader._standby.give().state["w"][0] == 3


def test_a_chunk_that_is_gone_from_the_newest_version_is_damage(monkeypatch):
    world = World(monkeypatch)
    world.write(state(1))
    world.hear()
    del world.shard.topic[0]
    world.rounds()
    world.answer()
    with pytest.raises(ChunkError, match="spillway state rewind"):
        world.rounds()
    assert world.log.followed == 2


def test_a_damaged_chunk_that_every_newer_version_needs_is_damage_however_fast_they_come(monkeypatch):
    world = World(monkeypatch)
    still = np.zeros(100, np.float32)
    world.write(state(1) | {"still": still})
    world.hear()
    world.compact()
    left = [(key, value) for key, value in world.shard.topic if value != bytes(len(value))]
    assert len(left) < len(world.shard.topic)
    world.shard.topic[:] = left

    def serve():
        for n in range(2, 9):
            world.rounds()
            world.write(state(n) | {"still": still})
            world.hear()
            asked, world.asked[:] = list(world.asked), []
            for then in asked:
                then()

    with pytest.raises(ChunkError, match="is missing"):
        serve()
    assert world.copies.applied == INITIAL


def test_who_is_overtaken_while_it_gives_its_copy_is_not_told_of_damage(monkeypatch):
    world = World(monkeypatch)
    version = world.write(state(1))
    world.hear()
    reader, world.copies._reader = world.reader, None  # as `take` does
    reader.promote(version, lambda _given: None)
    del world.shard.topic[0]
    world.rounds()
    (then,) = world.asked
    world.unread.append(Fence(2, "other"))
    world.logs.take(PLACE, world.unread.pop())
    then()
    world.rounds()  # nothing is raised: it stands down
