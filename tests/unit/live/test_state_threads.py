"""Threads that post to their owner: in order, not after their end, and not into silence when they fail."""

import queue
import threading

import pytest

from spillway.agents.live.states import log_reader
from spillway.agents.live.states.log_reader import LogReader
from spillway.agents.live.states.worker import Mailbox, Worker
from spillway.lineage.errors import BrokerError, CheckpointError


def finished(run, post, on_failed):
    worker = Worker("test", lambda: run(worker), post, on_failed)
    worker.start()
    worker.join()
    return worker


def test_a_mailbox_calls_in_order_in_the_thread_that_delivers():
    mailbox, calls = Mailbox(), []
    finished(lambda worker: [worker.tell(calls.append, n) for n in range(5)], mailbox.post, calls.append)
    assert not calls
    assert mailbox.deliver() == 5
    assert calls == [0, 1, 2, 3, 4]
    assert mailbox.deliver() == 0


def test_what_is_posted_while_delivering_waits_for_the_next_round():
    mailbox, calls = Mailbox(), []
    mailbox.post(lambda: mailbox.post(calls.append, 1))
    assert mailbox.deliver() == 1
    assert not calls
    mailbox.deliver()
    assert calls == [1]


def test_an_error_of_ours_is_posted():
    mailbox, failures = Mailbox(), []

    def fail(_worker):
        raise BrokerError("away")

    finished(fail, mailbox.post, failures.append)
    mailbox.deliver()
    assert [str(error) for error in failures] == ["away"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_of_the_program_is_posted_too(monkeypatch):
    mailbox, failures = Mailbox(), []
    monkeypatch.setattr(threading, "excepthook", lambda _args: None)
    finished(lambda _worker: {}["nothing"], mailbox.post, failures.append)
    mailbox.deliver()
    assert isinstance(failures[0], CheckpointError)
    assert "KeyError" in str(failures[0])


def test_nothing_is_posted_after_the_end_nor_where_nobody_listens():
    mailbox, calls = Mailbox(), []

    def stopped(worker):
        worker.stop()
        worker.tell(calls.append, 1)

    finished(stopped, mailbox.post, calls.append)
    assert mailbox.deliver() == 0

    def closed(*_args):
        raise RuntimeError("Event loop is closed")

    assert finished(lambda worker: worker.tell(calls.append, 1), closed, calls.append).stopped


# What a reader of the version logs says when its host was suspended.

PLACE = ("learn", 0)


class Reading:
    """In place of the consumer: an empty log, which the broker answers for."""

    def __init__(self, *_arguments):
        pass

    def poll(self, _seconds):
        return [], {("p.learn.versions", 0): 0}

    def end(self, _slot):
        return 0

    def close(self):
        pass


class Listener:
    def __init__(self):
        self.said = queue.SimpleQueue()

    def records(self, batch):
        self.said.put(("records", batch))

    def caught_up(self, place):
        self.said.put(("caught up", place))

    def fell_behind(self, place):
        self.said.put(("fell behind", place))

    def failed(self, error):
        self.said.put(("failed", error))


def test_who_was_suspended_for_long_has_fallen_behind(monkeypatch):
    """The monotonic clock stands still meanwhile, and the logs may have been compacted."""
    now = [1_000.0]
    monkeypatch.setattr(log_reader, "PartitionReading", Reading)
    monkeypatch.setattr(log_reader, "since_boot", lambda: now[0])
    listener = Listener()
    reader = LogReader(None, "p", [PLACE], listener, lambda call, *given: call(*given), away=60.0)
    try:
        assert listener.said.get(timeout=60) == ("caught up", PLACE)
        now[0] += 3_600.0
        assert listener.said.get(timeout=60) == ("fell behind", PLACE)
        assert listener.said.get(timeout=60) == ("caught up", PLACE)
    finally:
        reader.close()
