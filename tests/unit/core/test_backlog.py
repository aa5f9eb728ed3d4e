"""Members of a shard that read with back-pressure, and take over from one another in the middle of a backlog.

Whatever a base covers, however far each member has read, and wherever reading stopped: what a version says of its input
can be written, the next reign has the same memory of it, and each request is taken exactly once along the chain.
"""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.input_tail import InputTail
from spillway.agents.core.request import Delivery, Taken
from spillway.agents.core.stateful_stage import StatefulShare
from spillway.checkpoint.notes import decode
from spillway.lineage.hops import Hop
from spillway.lineage.limits import Limits
from spillway.lineage.replication import Contents, InputPlace
from spillway.lineage.values.contents import pack_contents

MOST = 12  # records in a tail
ROOM = 4  # records that a reign has in hand
START = InputPlace(0, 0)


def deliveries(random: Random, requests: int, gaps: bool) -> list[Delivery]:
    """A partition's log: a predecessor that crashes now and then and repeats, with gaps between offsets if so told."""
    offset, log = 0, []
    for record in messages(random, "up", requests):
        offset += random.randint(1, 3) if gaps else 1
        log.append(record.delivery(offset - 1))
    return log


def client_records(random: Random, requests: int) -> list[Delivery]:
    """A partition of the ingress: clients that send some queries again."""
    ids = [random.randint(0, number) for number in range(requests)]
    return [Delivery(f"q{number}", 0, offset, 0.0, 9e9, "", None, appended=1.0) for offset, number in enumerate(ids)]


@dataclass
class Version:
    place: InputPlace
    taken: tuple[str, ...]  # the requests of this version and of all before it, in no order


@dataclass
class Member:
    log: list[Delivery]
    tail: InputTail = field(init=False)
    at: int = 0  # of the log, where its consumer is
    queue: list[Delivery] = field(default_factory=list)  # its feed's

    def __post_init__(self):
        self.tail = InputTail(strip=lambda record: record, envelope=lambda record: record, most_records=MOST)
        self.tail.start(0, 0, "")

    def read(self, count: int, *, reigns: bool) -> None:
        for _ in range(count):
            if self.tail.full or self.at >= len(self.log):
                return
            record, self.at = self.log[self.at], self.at + 1
            if self.tail.append(0, record, 1) and reigns:
                self.queue.append(record)

    def rejoin(self) -> None:
        """Its group was rebalanced: reading goes on where the tail says."""
        upto = self.tail.next(0)
        self.at = next((at for at, record in enumerate(self.log) if record.offset >= upto), len(self.log))


class World:
    def __init__(self, random: Random, log: list[Delivery]):
        self.random, self.log = random, log
        self.members = [Member(log), Member(log)]
        self.versions = [Version(START, ())]  # complete, of the chain, from the newest durable one on
        self.reign(0, self.versions[0])

    # What happens

    def reign(self, member: int, base: Version) -> None:
        self.primary, self.base = self.members[member], base
        del self.versions[self.versions.index(base) + 1 :]
        self.share = StatefulShare(0, base.place.position, None)
        spans = decode(base.place.note, base.place.position).spans
        self.share.cover(base.place.covered)
        if base is not self.versions[0]:
            self.share.committed = 0
        tail, position = self.primary.tail, base.place.position
        missing = tail.missing(0, position, spans)  # read again from the log, as at a start
        known = list(tail.remembered(0, position, spans))
        again = [each for each in self.log if any(start <= each.offset < end for start, end in missing)]
        offsets = [delivery.offset for delivery in (*known, *again)]
        assert offsets == sorted(set(offsets))
        for delivery in (*known, *again):
            self.share.remember(delivery)
        for each in self.members:
            each.queue.clear()
        self.primary.queue.extend(tail.since(0, position))
        self.in_hand: list[Delivery] = []
        self.finished: list[str] = []
        self.taken = set(base.taken)

    def deliver(self, count: int) -> None:
        for _ in range(count):
            if not self.primary.queue or len(self.in_hand) >= ROOM:
                return
            delivery = self.primary.queue.pop(0)
            taken = self.share.take(delivery)
            if taken is Taken.FIRST:
                assert delivery.request_id not in self.taken, f"{delivery.request_id} is taken twice"
                self.taken.add(delivery.request_id)
                self.in_hand.append(delivery)

    def finish(self, count: int) -> None:
        for _ in range(min(count, len(self.in_hand))):
            delivery = self.in_hand.pop(self.random.randrange(len(self.in_hand)))
            self.share.offsets.done(delivery.offset)
            self.finished.append(delivery.request_id)

    def record(self) -> None:
        place = self.share.place()
        pack_contents(Contents(inputs=(place,)), Limits())  # raises for what no manifest can say
        newest = self.versions[-1].place
        assert place.position >= newest.position
        self.versions.append(Version(place, (*self.base.taken, *self.finished)))

    def durable(self, number: int, *, told: bool) -> None:
        version = self.versions[min(number, len(self.versions) - 1)]
        del self.versions[: self.versions.index(version)]
        self.share.confirm(version.place.position)
        for member in self.members:
            if told or member is self.primary:
                member.tail.trim(0, version.place.position, version.place.note)

    def step(self) -> None:
        random = self.random
        what = random.choices(
            ["read", "deliver", "finish", "record", "durable", "reign", "rejoin"], [4, 4, 6, 5, 2, 2, 0.3]
        )[0]
        if what == "read":
            member = self.members[random.random() < 0.15]  # one is slow
            member.read(random.randint(1, 8), reigns=member is self.primary)
        elif what == "reign":
            self.reign(random.randrange(2), random.choice(self.versions))
        elif what == "rejoin":
            random.choice(self.members).rejoin()
        elif what == "durable":
            self.durable(random.randrange(3), told=random.random() < 0.7)
        elif what == "record":
            self.record()
        else:
            getattr(self, what)(random.randint(1, 3))

    def to_the_end(self) -> list[str]:
        """Let the primary go on alone until it has nothing left; gives what the last version holds."""
        for _ in range(10 * len(self.log)):
            self.primary.read(8, reigns=True)
            self.deliver(8)
            self.finish(8)
            self.record()
            self.durable(len(self.versions), told=True)
            if self.share.offsets.position > self.log[-1].offset:
                break
        return list(self.versions[-1].taken)


@given(st.integers(0, 2**32), st.sampled_from(["hops", "gaps", "clients"]), st.integers(0, 200))
def test_a_takeover_in_a_backlog_keeps_memory_and_coverage(seed, kind, steps):
    random = Random(seed)
    log = client_records(random, 60) if kind == "clients" else deliveries(random, 30, gaps=kind == "gaps")
    world = World(random, log)
    for _ in range(steps):
        world.step()
    world.reign(random.randrange(2), random.choice(world.versions))
    assert sorted(world.to_the_end()) == sorted({delivery.request_id for delivery in log})


# A predecessor's messages, made up: with the repetitions that its restarts cause.

NOW = 1_000.0


@dataclass(frozen=True)
class Made:
    request_id: str
    hop: Hop
    body: Any

    def delivery(self, offset):
        return Delivery(self.request_id, 0, offset, NOW, NOW + 1e6, self.hop.stage, self.hop, {}, (), NOW, self.body)


def messages(random, stage, requests):
    made = []
    committed = 0
    for number in range(requests):
        if random.random() < 0.3:
            committed = number
        made.append(Made(f"q{number}", Hop(stage, 1, 0, number, committed), f"{stage}.{number}"))
        if random.random() < 0.2:
            made += [replace(r, hop=replace(r.hop, committed=committed)) for r in made if r.hop.sequence >= committed]
    return made
