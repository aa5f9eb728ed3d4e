"""Replicas come and go under load: nothing is lost, and what is repeated is known by its hop."""

import signal
import threading
import time

import pytest

from spillway.checkpoint.dedup import PartitionMemory
from spillway.lineage import headers

TWO = """
partitions: 8
stages:
  - {name: step, emulated: {alpha: 3ms, beta: 0.1ms}, batching: {size: 16}, workers: {fronts: 3}}
"""


class Load:
    def __init__(self, one, rate):
        self.one = one
        self.rate = rate
        self.sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        began = time.monotonic()
        while not self._stop.is_set():
            while self.sent < (time.monotonic() - began) * self.rate:
                self.one.send(f"q{self.sent}", {"x": self.sent})
                self.sent += 1
            self._stop.wait(0.005)

    def stop(self):
        self._stop.set()
        self._thread.join()
        self.one.flush()
        return self.sent


def fresh(messages):
    """Suppress repetitions as a receiver does: by the hop. Return ids in order."""
    lanes, ids = {}, []
    for message in messages:
        told = headers.decode(message.headers())
        lane = lanes.setdefault(message.partition(), PartitionMemory())
        if lane.fresh(told.request_id, message.offset(), told.hop.stage, told.hop, 0.0):
            ids.append(told.request_id)
    return ids


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)])
def test_replicas_join_and_leave_under_load(stage, until, how):
    one = stage(TWO)
    options = {"session": 2.0}  # so that a killed member's partitions move on within the test
    first = one.start("step", 0, **options)
    until(lambda: one.metrics("step", 0))
    load = Load(one, 300)
    out = one.reader("outcomes")
    out.wait(200)
    second = one.start("step", 1, **options)
    until(lambda: one.metrics("step", 1).get("spillway_emitted_total", 0) > 50)
    one.stop(first, how)
    had = one.metrics("step", 1)["spillway_emitted_total"]
    third = one.start("step", 2, **options)
    until(lambda: one.metrics("step", 2).get("spillway_emitted_total", 0) > 50)
    until(lambda: one.metrics("step", 1)["spillway_emitted_total"] > had + 50)
    one.stop(second, how)
    until(lambda: one.committed("step") and one.metrics("step", 2).get("spillway_emitted_total", 0) > 300)
    sent = load.stop()
    until(lambda: one.committed("step") == one.ends())
    out.settle()
    ids = fresh(out.messages)
    assert sorted(ids) == sorted(f"q{number}" for number in range(sent))
    if how is signal.SIGTERM:
        assert len(out.messages) - len(ids) < sent / 10
    assert one.stop(third) == 0


FULL = """
partitions: 4
stages:
  - {name: step, emulated: {alpha: 10ms, beta: 1ms}, batching: {size: 8}, queue: 8, workers: {fronts: 2}}
"""


class Backlog:
    """Sends queries so that a stage always has more waiting than it can hold, however long a step of the test takes."""

    def __init__(self, one, out, until):
        self.one = one
        self.out = out
        self.until = until
        self.sent = {}

    def await_emitted(self, replica, count):
        before = self._emitted(replica)
        self.until(lambda: self._emitted(replica) > before + count)

    def _emitted(self, replica):
        self.out.poll(0)
        if len(self.sent) - len(self.out.messages) < 1000:
            self.sent |= self.one.send_many(1000, prefix=f"q{len(self.sent)}")
        return self.one.metrics("step", replica).get("spillway_emitted_total", 0)


@pytest.mark.nightly
def test_a_stage_that_had_no_room_when_its_group_changed_goes_on(stage, until):
    """What waits for room when the partitions are dealt anew is read again, as often as that happens."""
    one = stage(FULL)
    first = one.start("step", 0)
    out = one.reader("outcomes")
    backlog = Backlog(one, out, until)
    backlog.await_emitted(0, 100)
    for _ in range(2):  # twice, as it is two chunks that may wait
        second = one.start("step", 1)
        until(lambda: one.metrics("step", 1))
        backlog.await_emitted(1, 20)
        assert one.stop(second) == 0
        backlog.await_emitted(0, 100)
    until(lambda: one.committed("step") == one.ends())
    out.settle()
    assert sorted(fresh(out.messages)) == sorted(backlog.sent)
    assert one.stop(first) == 0
