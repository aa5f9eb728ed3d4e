"""What stateful stages leave in the logs, made up: their messages, what becomes of their versions, and who knows it.

Reigns of which the newest versions die with their primary, what dead versions said (other things, maybe not all of it),
the repetitions of the next reign, and copies that zombies send later.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agents.core.request import Delivery
from lineage.hops import Hop
from lineage.marks import Mark, Version

if TYPE_CHECKING:
    from random import Random

NOW = 1_000.0


@dataclass(frozen=True)
class Record:
    request_id: str
    hop: Hop
    body: Any  # a payload, or an Outcome at the gate
    lost: tuple[str, ...] = ()

    def delivery(self, offset: int, wrap: Any = lambda body: body) -> Delivery:
        return Delivery(
            self.request_id, 0, offset, NOW, NOW + 1e6, self.hop.stage, self.hop, {}, self.lost, NOW, wrap(self.body)
        )  # fmt: skip


@dataclass
class Source:
    """One predecessor's messages in order, what becomes of its versions, and which of its messages live."""

    messages: list[Record] = field(default_factory=list)
    news: list[tuple[str, str, int, int]] = field(default_factory=list)  # what, stage, epoch, up to or from which n
    dead: set[Mark] = field(default_factory=set)


def source(random: Random, stage: str, requests: int, reigns: int, losses: float) -> Source:
    made = Source()
    covered, base, durable = {0: 0}, 0, 0  # coverage by n, over all reigns
    for epoch in range(1, reigns + 1):
        n, position = base, covered[base]
        said: list[tuple[int, Record]] = []
        while position < requests and (epoch == reigns or random.random() < 0.85):
            n += 1
            group = range(position, min(requests, position + random.randint(1, 3)))
            position = covered[n] = group.stop
            mark = Mark(stage, 0, Version(epoch, n))
            for number in random.sample(group, len(group)):
                hop = Hop(stage, epoch, 0, number, covered[durable], (mark,))
                lost = (stage,) if random.random() < losses else ()
                said.append((n, Record(f"q{number}", hop, f"{stage}{epoch}.{number}", lost)))
            if random.random() < 0.4 and n > durable:
                durable = random.randint(durable + 1, n)
                made.news.append(("durable", stage, epoch, durable))
        last = epoch == reigns
        cut = n if last else random.randint(durable, n)
        kept = [record for at, record in said if at <= cut or random.random() < 0.7]
        made.messages += kept
        made.dead |= {mark for record in made.messages for mark in record.hop.marks if mark.version.n > cut}
        made.news.append(("dead", stage, epoch, cut + 1))
        if last or random.random() < 0.5:
            durable = cut
            made.news.append(("durable", stage, epoch, cut))
        base = cut
    again = [(random.randint(0, len(made.messages)), record) for record in made.messages if random.random() < 0.3]
    for place, record in sorted(again, key=lambda pair: -pair[0]):
        if place > made.messages.index(record):
            made.messages.insert(place, record)
    return made


def plain_source(random: Random, stage: str, requests: int) -> Source:
    """A predecessor whose messages rest on nothing; it repeats what it had not committed."""
    made = Source()
    committed = 0
    for number in range(requests):
        if random.random() < 0.3:
            committed = number
        made.messages.append(Record(f"q{number}", Hop(stage, 1, 0, number, committed), f"{stage}.{number}"))
        if random.random() < 0.2:
            made.messages += [
                replace(r, hop=replace(r.hop, committed=committed))
                for r in made.messages
                if r.hop.sequence >= committed
            ]
    return made


def forwarded(made: Source, stage: str) -> list[Record]:
    """What a stage without a state makes of another one's results: it repeats what is repeated."""
    results = [record for record in made.messages if not record.lost]
    first = {id(record): number for number, record in reversed(list(enumerate(results)))}
    return [Record(r.request_id, Hop(stage, 1, 0, first[id(r)], 0, r.hop.marks), f"{stage}({r.body})") for r in results]


class View:
    """What somebody knows of durability: the first of the news."""

    def __init__(self, news: list[tuple[str, str, int, int]]) -> None:
        self._news = news
        self.read = 0
        self._durable: dict[str, int] = {}  # n of the newest; what is not cut off below it is durable as well
        self._dead: dict[tuple[str, int], int] = {}

    def learn(self, upto: int) -> None:
        for what, stage, epoch, n in self._news[self.read : upto]:
            if what == "durable":
                self._durable[stage] = n
            else:  # a chain that is cut below where a reign began is cut in the reign before, too
                for reign in range(1, epoch + 1):
                    self._dead[stage, reign] = min(n, self._dead.get((stage, reign), n))
        self.read = max(self.read, upto)

    def durable(self, mark: Mark) -> bool:
        return mark.version.n <= self._durable.get(mark.stage, 0) and not self.dead(mark)

    def dead(self, mark: Mark) -> bool:
        at = self._dead.get((mark.stage, mark.version.epoch))
        return at is not None and mark.version.n >= at

    def may_release(self, hops: Any) -> bool:
        return all(self.durable(mark) for hop in hops for mark in hop.marks)


def merged_in_order(random: Random, lists: list[list[Any]]) -> list[Any]:
    """Interleave; each list keeps its order."""
    rest = [list(reversed(items)) for items in lists if items]
    out = []
    while rest:
        chosen = random.choices(rest, weights=[len(items) for items in rest])[0]
        out.append(chosen.pop())
        rest = [items for items in rest if items]
    return out
