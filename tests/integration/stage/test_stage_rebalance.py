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


@pytest.mark.nightly
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
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
