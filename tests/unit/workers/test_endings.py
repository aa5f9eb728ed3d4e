"""Workers that are to end: none is started behind the end, and none stays that is told so while it connects."""

import threading
from types import SimpleNamespace

from spillway.agents.workers import remote, shim
from spillway.agents.workers.links import Links
from spillway.agents.workers.remote import RemoteWorker


def unconnected():
    worker = object.__new__(RemoteWorker)
    worker._place, worker._address, worker._stopping, worker._stream = "s", ("h", 1), threading.Event(), None
    return worker


def test_links_that_are_closed_start_and_end_nothing():
    started = []
    links = Links(SimpleNamespace(), timeout=1.0, command=started.append)
    links.close()
    links.spawn(0)
    links.bye(0)
    assert not started


def test_a_worker_that_is_told_to_stop_while_it_connects_serves_no_front(monkeypatch):
    served, closed = [], []
    worker = unconnected()

    def connect():
        worker.stop()
        return SimpleNamespace(close=lambda: closed.append(True), shut=bool)

    worker._connect = connect
    worker._model, worker._told = None, {}
    monkeypatch.setattr(remote.shim, "Stream", lambda _connection: SimpleNamespace(receive=list))
    monkeypatch.setattr(shim, "work", lambda *_: served.append(True))
    worker.serve()
    assert closed
    assert not served


def test_a_process_that_is_no_front_is_asked_again_later(caplog):
    """It may have a certificate of the same authority, as another service of the house."""
    worker = unconnected()
    asked = []

    def receive(buffer):
        asked.append(True)
        if len(asked) == 2:
            worker._stopping.set()
        buffer[:] = b"HTTP/1.1 400 Bad Request"[: len(buffer)].ljust(len(buffer))
        return len(buffer)

    worker._connect = lambda: SimpleNamespace(recv_into=receive, close=bool, shut=bool)
    worker.serve()
    assert len(asked) == 2
    assert caplog.text.count("s: the process at h:1 is not a front (") == 2
