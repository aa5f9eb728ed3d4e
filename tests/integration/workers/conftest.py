"""What hears of workers in place of a stage."""

import queue

import pytest

SECONDS = 60.0


class Heard:
    def __init__(self):
        self.events = queue.SimpleQueue()

    def ready(self, worker, hello):
        self.events.put(("ready", worker, hello))

    def answered(self, worker, job, first, results, seconds):
        self.events.put(("answered", worker, job, first, results))

    def lost(self, worker, job, answered, why, *, failed):
        self.events.put(("lost", worker, job, answered, why, failed))

    def broken(self, error):
        self.events.put(("broken", error))

    def draining(self, worker):
        self.events.put(("draining", worker))

    def next(self, kind):
        event = self.events.get(timeout=SECONDS)
        assert event[0] == kind, event
        return event[1:]


@pytest.fixture
def heard():
    return Heard()


def query(**inputs):
    return {"inputs": inputs, "parameters": {}, "id": "r", "key": "k"}
