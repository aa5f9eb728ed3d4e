"""What hangs of a gate falls where offsets hang and stands otherwise; what another gate is at work on is let be."""

import itertools

import pytest
from confluent_kafka import IsolationLevel

from spillway.agents.live.gate import stuck_transactions
from spillway.agents.live.gate.stuck_transactions import StuckTransactions
from spillway.lineage.errors import AbortedError
from spillway.producers.connection import ClientSettings

OUTPUTS = ("p.egress", "p.dead")


class Cluster:
    """As much of an admin client and of a gate's writer as is asked here: what is open where, and how it is ended."""

    def __init__(self):
        self.open = {}  # (topic, partition): the first offset that is not shown
        self.withheld = set()  # partitions of the input
        self.moves = itertools.repeat(0)  # how much farther a gate at work is at each look
        self.ended = []
        self.fails = 0

    def ask(self, question, _what, _within):
        return question(self)

    def list_topics(self, topic, _seconds):
        listed = type("Topic", (), {"partitions": {0: None, 1: None}, "error": None})
        return type("Listed", (), {"topics": {topic: listed}})

    def list_offsets(self, wanted, isolation_level, request_timeout):
        assert request_timeout > 0
        moved = next(self.moves) if isolation_level is IsolationLevel.READ_COMMITTED else 10**6
        shown = {place: self.open.get((place.topic, place.partition), 10**7) for place in wanted}
        return {place: Done(min(first + moved, 10**6)) for place, first in shown.items()}

    def once(self, topic, partitions, seconds):
        assert topic == "p.outcomes"
        assert seconds > 0
        return sorted(self.withheld & set(partitions))

    def close(self):
        pass

    def write(self, turn, _group, _within, *, stand=True):
        places = {(record.topic, record.partition) for record in turn.records}
        offsets = {place.partition for place in turn.positions}
        self.ended.append(("stand" if stand else "fall", places, offsets))
        if self.fails:
            self.fails -= 1
            raise AbortedError("not this time")
        if self.mine:
            for place in places:
                self.open.pop(place)
            self.withheld -= offsets

    mine = True


class Done:
    """A future that has come."""

    def __init__(self, offset):
        self.offset = offset

    def result(self):
        return self


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.setattr(stuck_transactions, "_SURE_SECONDS", 0.02)
    monkeypatch.setattr(stuck_transactions, "_PAUSE_SECONDS", 0.005)
    made = Cluster()
    monkeypatch.setattr(stuck_transactions, "Admin", lambda _settings: made)
    monkeypatch.setattr(stuck_transactions, "Withheld", lambda _settings, _group: made)
    return made


def mend(cluster, within=60.0):
    settings = ClientSettings.load("127.0.0.1:1").confluent()
    mender = StuckTransactions({**settings, "log_level": 0}, group="p.gate", outcomes="p.outcomes", outputs=OUTPUTS)
    mender.mend(cluster, within)


def test_nothing_is_done_where_nothing_hangs(cluster):
    mend(cluster)
    assert cluster.ended == []


def test_outputs_alone_are_made_to_stand(cluster):
    cluster.open = {("p.egress", 1): 5, ("p.dead", 0): 0}
    mend(cluster)
    assert cluster.ended == [("stand", {("p.egress", 1), ("p.dead", 0)}, set())]


def test_all_of_it_falls_where_offsets_hang(cluster):
    cluster.open = {("p.egress", 1): 5}
    cluster.withheld = {0, 1}
    mend(cluster)
    assert cluster.ended == [("fall", {("p.egress", 1)}, {0, 1})]


def test_an_end_that_was_aborted_is_made_again(cluster):
    cluster.open = {("p.egress", 1): 5}
    cluster.fails = 2
    mend(cluster)
    assert len(cluster.ended) == 3
    assert not cluster.open


def test_a_gate_at_work_is_let_be(cluster):
    cluster.open = {("p.egress", 1): 5}
    cluster.moves = itertools.count()
    mend(cluster)
    assert cluster.ended == []


def test_what_hangs_of_another_gate_is_said_and_left(cluster, caplog):
    cluster.open = {("p.egress", 1): 5}
    cluster.mine = False
    mend(cluster, within=0.1)
    assert cluster.ended
    assert "a transaction of another producer hangs in p.egress[1]" in caplog.text
