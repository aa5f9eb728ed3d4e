"""Short words for what is written to version logs, and the failover of Fig. 6."""

from spillway.checkpoint.logs import Logs
from spillway.checkpoint.version_log import Base, Fence, Manifest
from spillway.checkpoint.versions import INITIAL, Mark, Version

A, B, C = ("a", 0), ("b", 0), ("c", 0)


def mark(place, epoch, n):
    return Mark(*place, Version(epoch, n))


class Story:
    """Logs, and short words for what is written to them."""

    def __init__(self, *places, caught_up=True):
        self.logs = Logs(places or (A, B, C))
        for place in places or (A, B, C):
            self.reign(place, 1, INITIAL)
            if caught_up:
                self.logs.caught_up(place)

    def fence(self, place, epoch):
        self.logs.take(place, Fence(epoch, f"m{epoch}"))

    def reign(self, place, epoch, base):
        self.fence(place, epoch)
        history = self.logs.log(place).history.begun(epoch, base)
        self.logs.take(place, Base(epoch, f"m{epoch}", base, history.links))

    def complete(self, place, n, *requires):
        history = self.logs.log(place).history
        version = Version(history.epoch, n)
        return self.logs.take(place, Manifest(version, history.links, requires, f"m{history.epoch}"))

    def fate(self, place, epoch, n):
        return self.logs.fate(mark(place, epoch, n))


def fig_6():
    """Fig. 6 of the paper: the state of a is delayed, that of b is written, then a's primary dies."""
    story = Story()
    story.complete(A, 1)
    story.complete(B, 1, mark(A, 1, 1))
    story.complete(B, 2, mark(A, 1, 2))
    story.complete(C, 1, mark(B, 1, 1))
    story.complete(C, 2, mark(B, 1, 2))
    story.reign(A, 2, Version(1, 1))
    return story
