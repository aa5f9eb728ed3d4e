"""`spillway change failover` on a real broker, with a shard whose members the test plays."""

import json
import threading
import time

import pytest
import yaml
from click.testing import CliRunner

from spillway.agents.cli.commands.failover import failover
from spillway.agents.live.operator.switch import check_place
from spillway.lineage.errors import SpillwayError, UsageError
from spillway.lineage.replication import Yield
from spillway.lineage.values.replication import ReplicationDecoder
from spillway.producers.connection import ClientSettings
from spillway.producers.kafka.reading import Reading
from spillway.topology import topics
from spillway.topology.load import load
from tests.written_states import ShardWriter

STAGES = [
    {"name": "learn", "model": "m:M", "state": {"kind": "shared", "shards": 2}},
    {"name": "bare", "model": "m:M", "after": "learn", "state": {"kind": "shared", "replication": "none"}},
    {"name": "alone", "model": "m:M", "after": "bare", "state": {"kind": "shared", "backups": 0}},
    {"name": "plain", "model": "m:M", "after": "alone"},
]


@pytest.fixture
def file(tmp_path, unique_name):
    path = tmp_path / "pipeline.yaml"
    path.write_text(yaml.safe_dump({"name": unique_name, "slo": 1, "partitions": 2, "stages": STAGES}))
    return path


class Members:
    """A shard's primary, and a backup that takes over when it reads a wish, unless it is `deaf`."""

    def __init__(self, broker, spec, shard, roles=("primary", "backup"), *, deaf=False):
        self.spec, self.roles, self.deaf = spec, roles, deaf
        self.shard = ShardWriter(broker, spec, "learn", shard).begin(1)
        self.wishes = []
        self._stop = threading.Event()
        self._control = Reading(ClientSettings(bootstrap=broker), [(topics.control(spec.name), 0)], from_end=True)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self._control.close()

    def _run(self):
        decoder, due = ReplicationDecoder(), 0.0
        while not self._stop.is_set():
            if time.monotonic() >= due:
                due = time.monotonic() + 0.1
                for role in self.roles:
                    self.shard.beat(role)
            for message in self._control.read(0.01):
                record = decoder.record(message.value)
                if isinstance(record, Yield):
                    self.wishes.append(record)
                    if not self.deaf:
                        self.shard.begin(record.epoch + 1)


def run(broker, *arguments):
    command = [*map(str, arguments), "--bootstrap", broker]
    return CliRunner().invoke(failover, command, standalone_mode=False)


def test_a_backup_takes_over_and_the_time_is_told(broker, file):
    with Members(broker, load(file).spec, 1) as members:
        told = run(broker, file, "learn", "--shard", 1, "--why", "a test", "--json")
    assert told.exception is None, told.exception
    done = json.loads(told.output)
    (wish,) = members.wishes
    assert (wish.stage, wish.shard, wish.epoch, wish.reason) == ("learn", 1, 1, "a test")
    assert (done["old"], done["old_epoch"], done["new"], done["epoch"]) == ("learn.1.m1", 1, "learn.1.m2", 2)
    assert 0 < done["seconds"] < 10


@pytest.mark.parametrize(
    ("roles", "words"),
    [((), r"no member was heard in 3 s"), (("primary",), r"no backup was heard in 3 s, only primary")],
)
def test_without_a_backup_nothing_is_asked(broker, file, roles, words):
    with Members(broker, load(file).spec, 0, roles) as members:
        told = run(broker, file, "learn")
    assert isinstance(told.exception, SpillwayError)
    with pytest.raises(SpillwayError, match=words):
        raise told.exception
    assert not members.wishes


def test_members_that_do_not_listen_are_named(broker, file):
    with Members(broker, load(file).spec, 0, deaf=True) as members:
        told = run(broker, file, "learn", "--timeout", 0.5)
    assert "in 0.5 s no member took over from 'learn.0.m1'" in str(told.exception)
    assert len(members.wishes) == 1


@pytest.mark.parametrize(
    ("stage", "shard", "words"),
    [
        ("plain", 0, "keeps no state"),
        ("bare", 0, "replication: none"),
        ("alone", 0, "no backups"),
        ("learn", 2, "no shard 2; it has 0 to 1"),
        ("nobody", 0, "no stage 'nobody'"),
    ],
)
def test_what_cannot_be_switched_is_said_before_a_cluster_is_looked_for(file, stage, shard, words):
    with pytest.raises(UsageError, match=words):
        check_place(load(file).spec, stage, shard)
