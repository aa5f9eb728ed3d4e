"""What a reader of the version logs says when its host was suspended."""

import queue

from agents.live.states import log_reader
from agents.live.states.log_reader import LogReader

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
