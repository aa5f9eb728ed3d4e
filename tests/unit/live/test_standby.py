"""A standby waits, visibly, for one line on its stdin."""

import io
from types import SimpleNamespace

import pytest

from spillway.agents.live.stage.config import StageProcessConfig
from spillway.agents.live.stage.standby import replica_in, wait_to_take
from spillway.agents.supervise.registry import entries
from spillway.lineage.errors import UsageError
from spillway.producers.connection import ClientSettings


@pytest.fixture
def config(tmp_path):
    pipeline = SimpleNamespace(spec=SimpleNamespace(name="p"))
    return StageProcessConfig(
        pipeline=pipeline,
        stage="a",
        replica=1,
        settings=ClientSettings(bootstrap="localhost:1"),
        run_dir=tmp_path,
        standby=True,
    )


class Seen(io.StringIO):
    """Remembers what the run directory had when the line was asked for."""

    def __init__(self, text, run_dir):
        super().__init__(text)
        self.run_dir, self.entries = run_dir, []

    def __next__(self):
        self.entries = entries(self.run_dir, "p")
        return super().__next__()


def test_it_is_seen_as_ready_while_it_waits_and_not_afterwards(config, tmp_path):
    stream = Seen("take 3\n", tmp_path)
    assert wait_to_take(stream, config) == 3
    (entry,) = stream.entries
    assert (entry.name, entry.role, entry.ready, entry.stage) == ("a.standby1", "standby", True, "a")
    assert entries(tmp_path, "p") == []


def test_other_lines_change_nothing(config):
    assert wait_to_take(io.StringIO("\nhello\ntake\ntake x\ntake -1\ntake 1 2\n take 12 \n"), config) == 12


@pytest.mark.parametrize("text", ["", "hello\n"])
def test_a_stdin_that_ends_without_a_word_is_an_error_that_names_the_way_out(config, tmp_path, text):
    with pytest.raises(UsageError, match=r"a\.standby1.*take REPLICA.*stdin that stays open"):
        wait_to_take(io.StringIO(text), config)
    assert entries(tmp_path, "p") == []


def test_what_it_becomes_is_the_replica_in_all(config):
    taken = config.taking(4)
    assert (taken.replica, taken.standby) == (4, False)


def test_only_the_word_counts():
    assert replica_in("take 0\n") == 0
    assert replica_in("take ٣\n") is None
