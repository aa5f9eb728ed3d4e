"""Threads that post to their owner: in order, not after their end, and not into silence when they fail."""

import threading

import pytest

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
