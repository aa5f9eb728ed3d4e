"""Messages that rest on states, and a durability that knows what it is told."""

from dataclasses import replace

from lineage.marks import Mark, Version
from tests.unit.core.builders import delivery

OLD, NEW = Mark("s", 0, Version(1, 5)), Mark("s", 0, Version(2, 5))
OTHER = Mark("t", 0, Version(1, 1))


class Known:
    def __init__(self):
        self.alive, self.gone, self.asked = set(), set(), 0

    def durable(self, mark):
        self.asked += 1
        return mark in self.alive

    def dead(self, mark):
        self.asked += 1
        return mark in self.gone

    def may_release(self, hops):
        return all(self.durable(mark) for hop in hops for mark in hop.marks)


def marked(request_id, offset, sender, *marks, **more):
    made = delivery(request_id, offset, sender, **more)
    made.hop = replace(made.hop, marks=marks)
    return made
