"""A device that does everything at the worst moment that its events allow.

A `Stream` is prompt (what it is given is done at once) or late (it is done when somebody waits for it). Of the model's
stream and the side stream one is prompt and the other late, so a wait that is missing shows: a copy that lands late
finds the next update's bytes; one that runs at once finds those of the update before; and what is read without waiting
is what was in the buffer. `Device(without=...)` leaves one wait out.
"""

from collections import deque

import numpy as np

GARBAGE = 0xA5


class Array(np.ndarray):
    """Memory of the device."""


def on_device(values):
    return np.array(values).view(Array)


class Stream:
    def __init__(self, prompt):
        self.given = self.done = 0
        self._prompt = prompt
        self._jobs = deque()

    def give(self, job):
        self._jobs.append(job)
        self.given += 1
        if self._prompt:
            self.run_to(self.given)

    def run_to(self, count):
        while self.done < count:
            self.done += 1
            self._jobs.popleft()()


class Event:
    def __init__(self, stream, heeded=True):
        self._stream, self._at, self._heeded = stream, stream.given, heeded

    def wait(self):
        if self._heeded:
            self.reach()

    def reach(self):
        self._stream.run_to(self._at)


class Device:
    def __init__(self, prompt="model", without=""):
        self.model, self.side = Stream(prompt == "model"), Stream(prompt == "side")
        self.copied_bytes = self.buffers = 0
        self._without = without

    def find(self, leaf):
        return self if isinstance(leaf, Array) else None

    def finder(self):
        return self.find

    def now(self):
        return Event(self.model)

    def follow(self, event):
        if self._without != "follow":
            self.model.give(event.reach)

    def buffer(self, leaf):
        self.buffers += 1
        return np.full(leaf.nbytes, GARBAGE, np.uint8).view(leaf.dtype).reshape(leaf.shape)

    def copy(self, pairs, after):
        if self._without != "after":
            if after is None:
                self.model.run_to(self.model.given)
            else:
                self.side.give(after.reach)
        for leaf, buffer in pairs:
            self.copied_bytes += leaf.nbytes
            self.side.give(lambda leaf=leaf, buffer=buffer: np.copyto(buffer, leaf))
        return Event(self.side, heeded=self._without != "wait")
