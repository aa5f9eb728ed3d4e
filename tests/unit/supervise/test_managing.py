"""Velox' model manager: what it does next, of what the log of generations says and its trainer's ends."""

import json
import signal
import threading

import pytest

from spillway.agents.learning.velox.staleness import NONE
from spillway.agents.supervise.model_manager import ModelManager, RefusedError, own_key
from spillway.lineage.keys import partition_for
from spillway.producers.connection import ClientSettings
from spillway.producers.generations import Generations
from spillway.topology.load import parse

FILE = """
name: songs
slo: 500ms
partitions: 4
stages:
  - {name: rank, model: "velox:songs:Songs", tables: {user: {of: taste}}}
learners:
  - name: taste
    model: "velox:songs:Songs"
    arguments: {folder: thetas, stale: {error: 1.0, window: 50}}
    state: {kind: keyed, shards: 2}
    publish: true
"""


class Log:
    def __init__(self):
        self.now = Generations()
        self.appended = []

    def append(self, event, generation=None, **told):
        said = {"event": event, **told, **({} if generation is None else {"generation": generation})}
        counts = self.now.take(said)
        self.appended.append((event, counts))
        return counts


class Shards:
    def __init__(self, count=1000.0, recent=0.5):
        self.told = {"errors": [count, 0.0, recent, recent], "pool": list(NONE), "users": 1, "stale": 0, "theta": "own"}
        self.told |= {"errors_since": [], "pool_since": []}
        self.stage = parse(FILE).learner("taste").spec.stages[0]
        self.refuses = ""

    def report(self):
        return {"0": self.told}

    def follow(self):
        if self.refuses:
            raise RefusedError(self.refuses)


@pytest.fixture
def log():
    """One whose only generation was asked for."""
    made = Log()
    made.append("asked")
    return made


@pytest.fixture
def manager():
    heard = []
    made = ModelManager(
        parse(FILE).learner("taste"), ClientSettings(bootstrap="nowhere:1"), None, threading.Event(), heard.append
    )
    made.heard = heard
    return made


def ends(manager, *each):
    following = iter(each)
    manager._child = lambda current, number, stop: next(following)


def train(manager, shards, log):
    manager._train(shards, log, log.now, log.now.open.number, threading.Event())


def test_a_stale_model_is_retrained_and_only_so_much_later_again(manager):
    log, shards = Log(), Shards()
    manager._watch(shards, log, log.now)
    assert not log.appended
    shards.told["errors"][2] = 2.0
    manager._watch(shards, log, log.now)
    assert log.appended == [("asked", True)]
    ends(manager, (0, json.dumps({"old": 1.0, "new": 1.0, "held": 50, "why": "50 do not suffice to tell"}), ""))
    train(manager, shards, log)
    assert manager.heard[-1].endswith("rejected, as 50 do not suffice to tell: 1 on held-out observations, was 1")
    assert log.appended[1:] == [("kept", True)]
    manager._watch(shards, log, log.now)
    assert len(log.appended) == 2
    shards.told["errors"][0] += 50
    manager._watch(shards, log, log.now)
    assert log.appended[2:] == [("asked", True)]


def test_better_features_are_noted_whatever_the_class_has_printed(manager, log):
    said = json.dumps({"old": 1.0, "new": 0.5, "held": 50, "theta": "new"})
    ends(manager, (0, f"epoch 1\n{said}\n{{}}\n3 files are closed\n", ""))
    train(manager, Shards(), log)
    assert log.now.open.theta == "new"
    assert log.now.held == (0, 1)


def test_a_trainer_that_is_killed_is_started_again_and_given_up_the_third_time(manager, log):
    ends(manager, *[(-signal.SIGKILL, "", "")] * 3)
    for _ in range(2):
        train(manager, Shards(), log)
        assert log.now.open is not None
    train(manager, Shards(), log)
    assert log.now.known[1].end == "failed"
    assert "killed by SIGKILL" in log.now.known[1].events[-1]["why"]
    assert log.now.held == (0,)


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ((0, "", ""), "its trainer returned nothing"),
        ((1, "", "warning\nerror: Songs has no table to retrain\n"), "Songs has no table to retrain"),
    ],
)
def test_why_a_trainer_has_failed_is_noted(manager, log, end, why):
    ends(manager, end)
    train(manager, Shards(), log)
    assert log.now.known[1].events[-1]["why"] == why


def test_a_learner_that_cannot_hold_new_features_ends_their_generation(manager):
    log, shards = Log(), Shards()
    for event, told in (("asked", {}), ("trained", {"generation": 1, "theta": "new"})):
        log.now.take({"event": event, **told})
    shards.refuses = "there is no file"
    manager._fill(shards, log, log.now, log.now.open.number, threading.Event())
    assert log.appended == [("failed", True)]
    assert log.now.held == (0,)


def test_each_shard_has_a_key_of_its_own():
    for partitions, shards in ((1, 1), (4, 2), (12, 5)):
        for shard in range(shards):
            assert partition_for(own_key(shard, partitions, shards).encode(), partitions) % shards == shard
