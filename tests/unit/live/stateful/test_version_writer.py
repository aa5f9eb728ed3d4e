"""A reign's versions on their way to the log: what the loop tells the writer, and when."""

import asyncio
import weakref
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from spillway.agents.live.stateful import build_reign as writing
from spillway.agents.live.stateful import transactions
from spillway.agents.live.stateful.build_reign import VersionWriter
from spillway.agents.live.stateful.transactions import TransactionalSending
from spillway.agents.live.states.sending import DeliveryError
from spillway.checkpoint.chunks import ChunkLog
from spillway.checkpoint.manifests import describe, seal
from spillway.checkpoint.reign import Write
from spillway.lineage.marks import Version
from spillway.lineage.replication import Batch, InputRecord
from spillway.lineage.values.replication import encode
from spillway.producers.connection import ClientSettings
from spillway.topology.topics import STATE_BYTES
from tests.modelled_client import Message


class Log:
    def __init__(self):
        self.durables = []
        self.versions = []

    def write(self, captured, manifest, **pieces):
        self.versions.append((captured, manifest, pieces))

    def durable(self, version, history):
        self.durables.append((version.n, history))

    def close(self):
        pass


def made(log, *, logs=False, completed=lambda _version: None):
    return VersionWriter(
        lambda _completed: log,
        claimant="me",
        history=lambda: SimpleNamespace(links=()),
        completed=completed,
        figures=None,
        logs=logs,
        release=lambda _copy: None,
    )


async def test_a_closed_writer_keeps_nothing_of_its_reign():
    class Reign:
        def completed(self, version):
            pass

    reign = Reign()
    gone = weakref.ref(reign)
    writer = made(Log(), completed=reign.completed)
    del reign
    writer.close()
    assert (gone(), writer.acked_bytes) == (None, 0)


async def test_tombstones_of_many_versions_go_together(monkeypatch):
    monkeypatch.setattr(writing, "_TIDY_SECONDS", 0.0)
    log = Log()
    writer = made(log)
    for n in (1, 2, 3):
        writer.durable(Version(1, n))
    assert log.durables == []
    for _ in range(5):
        await asyncio.sleep(0)
    writer.durable(Version(1, 3))  # no news
    assert writer._tidying is None
    assert [n for n, _ in log.durables] == [3]


async def test_a_reign_that_has_ended_tombstones_nothing(monkeypatch):
    monkeypatch.setattr(writing, "_TIDY_SECONDS", 0.0)
    log = Log()
    writer = made(log)
    writer.durable(Version(1, 1))
    writer.close()
    writer.durable(Version(1, 2))
    for _ in range(5):
        await asyncio.sleep(0)
    assert log.durables == []


@pytest.mark.parametrize("requests", [3, 10_000])
async def test_a_version_before_the_first_copy_fits_into_its_topic_however_much_it_logs(requests):
    log = Log()
    writer = made(log, logs=True)
    taken = tuple(InputRecord(f"query-{number}", 0, number) for number in range(requests))
    writer.write(Write(Version(1, 1), None, 0, (), (Batch(1, taken),), ()), ())
    writer.close()
    ((captured, manifest, pieces),) = log.versions
    version = ChunkLog(1).write(manifest.version, captured)
    assert list(version.records()) == []
    sealed, spilled = seal(manifest, describe(captured, version, **pieces), version)
    assert sealed.requests == requests
    assert len(encode(sealed)) < STATE_BYTES / 2
    assert all(len(value) < STATE_BYTES / 2 for _key, value in spilled)


# Transactions of a state whose broker does not answer: they are tried again for a while, and then given up.

SILENCE = KafkaError(KafkaError._TIMED_OUT, "nothing is heard", retriable=True)


class SilentProducer:
    """Says so many times that it hears nothing, and of each record what it is given."""

    def __init__(self, times, *reports):
        self.times = times
        self.reports = list(reports)
        self.waiting = []  # for their reports
        self.unsent = 0  # times that a flush leaves something
        self.committed = False

    def init_transactions(self, _seconds):
        pass

    def begin_transaction(self):
        pass

    def produce(self, *_record, on_delivery, **_options):
        self.waiting.append(on_delivery)

    def flush(self, _seconds):
        for on_delivery in self.waiting:
            on_delivery(*self.reports.pop(0))
        self.waiting.clear()
        self.unsent -= self.unsent > 0
        return self.unsent

    def commit_transaction(self, _seconds):
        self.times -= 1
        if self.times >= 0:
            raise KafkaException(SILENCE)
        self.committed = True


def sending(monkeypatch, producer):
    monkeypatch.setattr(transactions, "idempotent_producer", lambda *_arguments: producer)
    made = TransactionalSending(ClientSettings.load("b:1"), "t", "t.0")
    made.begin()
    return made


def test_a_commit_is_tried_again(monkeypatch):
    sending(monkeypatch, SilentProducer(3)).commit()


def test_a_connection_that_is_lost_for_good_ends_the_process(monkeypatch):
    monkeypatch.setattr(transactions, "_WITHIN", 0.01)
    with pytest.raises(DeliveryError, match="nothing is heard"):
        sending(monkeypatch, SilentProducer(10**9)).commit()


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ((KafkaError(KafkaError._MSG_TIMED_OUT, "too late"), Message("t", 0, -1001)), "2 records: t: .*too late"),
        ((None, Message("t", 0, -1001)), "2 records: t: its offset is unknown"),
    ],
)
def test_nothing_is_committed_where_a_record_was_not_stored(monkeypatch, report, said):
    producer = SilentProducer(0, (None, Message("t", 0, 3)), report, report)
    made = sending(monkeypatch, producer)
    for _ in range(3):
        made.send("t", 0, b"k", b"v")
    with pytest.raises(DeliveryError, match=said):
        made.commit()
    assert not producer.committed


def test_a_commit_waits_for_what_is_under_way(monkeypatch):
    producer = SilentProducer(0)
    made = sending(monkeypatch, producer)
    producer.unsent = 3
    made.commit()
    assert producer.committed
    assert producer.unsent == 0
