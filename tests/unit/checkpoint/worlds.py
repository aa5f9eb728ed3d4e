"""Random histories: members that claim, reign, die and write late; logs that are compacted at any moment; readers.

Everything that a run's members decide is decided by the real `Member`, `Claims` and `Logs`, each on what it has read so
far. `World.problems` says what went wrong: two readers that disagree, a reader that goes back on its word, two
primaries of one epoch, a log that contradicts itself.
"""

from __future__ import annotations

from itertools import count
from random import Random

from checkpoint import version_log
from checkpoint.claims import Claims
from checkpoint.logs import Fate, Logs
from checkpoint.promotion import Append, Load, Member, Role
from checkpoint.retention import Retention
from checkpoint.versions import Mark, Version
from lineage.errors import CheckpointError
from lineage.marks import merged
from lineage.replication import Claim, Manifest

# Upstream shards of each shard.
CHAIN = {("a", 0): [], ("b", 0): [("a", 0)], ("c", 0): [("b", 0)]}
DIAMOND = {("a", 0): [], ("b", 0): [("a", 0)], ("c", 0): [("a", 0)], ("d", 0): [("b", 0), ("c", 0)]}
ALONE = {("a", 0): []}
FINAL = (Fate.DURABLE, Fate.DEAD)


class Log:
    """One version log: (key, record) in order, None for a tombstone; compaction leaves gaps."""

    def __init__(self):
        self.records = []
        self.gone = set()

    def append(self, name, record):
        self.records.append((name, record))

    def whole(self):
        """All records that were ever appended."""
        return [record for _, record in self.records if record is not None]

    def left(self):
        """The records that compaction has left."""
        return [r for offset, (_, r) in enumerate(self.records) if r is not None and offset not in self.gone]

    def superseded(self):
        """Offsets of records with a later one of their key, and that one's offset."""
        last = {name: offset for offset, (name, _) in enumerate(self.records)}
        return [(offset, last[name]) for offset, (name, _) in enumerate(self.records) if last[name] != offset]


class Reader:
    """Somebody who follows all version logs, and judges by them."""

    def __init__(self, world):
        self.world = world
        self.logs = world.logs_type(world.shape)
        self.at = dict.fromkeys(world.shape, 0)
        self.ends = {place: len(log.records) for place, log in world.logs.items()}
        self.said = {}
        for place in world.shape:
            self._look(place)

    def read(self, place):
        """Read one record; say which and whether it counts."""
        log = self.world.logs[place]
        while self.at[place] < len(log.records):
            offset = self.at[place]
            self.at[place] += 1
            if offset not in log.gone:
                record = log.records[offset][1]
                counts = record is not None and self.logs.take(place, record)
                self._look(place)
                return record, counts
        self._look(place)
        return None, False

    def read_all(self):
        for place in self.world.shape:
            while self.at[place] < len(self.world.logs[place].records):
                self.read(place)
        return self

    def _look(self, place):
        if self.at[place] >= self.ends[place]:
            self.logs.caught_up(place)
        self.world.judged(self)


class Process(Reader):
    """A member of a shard; as primary it writes versions until it hears that somebody else reigns."""

    def __init__(self, world, place):
        super().__init__(world)
        self.place = place
        self.claims = Claims()
        self.heard_claims = 0
        self.member = world.member_type(place, f"m{next(world.names)}", self.claims, self.logs)
        self.retention = Retention()
        self.outbox = []  # what it has sent and no log has yet, in order
        self.reads = self.sends = 1.0
        self.n = 0
        self.chain = ()
        self.owed = ()  # what its newest version requires, where that has no manifest of its own

    def step_versions(self, place):
        offset = self.at[place]
        record, counts = self.read(place)
        if place != self.place:
            return
        for passed in range(offset, self.at[place]):
            name, what = self.world.logs[place].records[passed]
            if what is None:
                self.retention.tombstoned(name)
            elif passed not in self.world.logs[place].gone:
                self.retention.appended(what)
        if record is not None:
            self.act(self.member.heard(record, counts=counts))

    def step_control(self):
        if self.heard_claims < len(self.world.control):
            claim = self.world.control[self.heard_claims]
            self.heard_claims += 1
            self.act(self.member.heard_claim(claim, won=self.claims.take(claim)))

    def want(self):
        behind = any(self.at[place] < self.ends[place] for place in self.world.shape)
        if not behind and self.heard_claims == len(self.world.control):
            self.act(self.member.wanted())

    def act(self, action):
        if isinstance(action, Append):
            self.outbox.append(action.record)
        elif isinstance(action, Load):
            self.world.reigns(self, action.epoch)
            self.n, self.owed = action.version.n, ()
            self.chain = self.logs.log(self.place).history.links

    def write(self):
        """Make a version that rests on versions upstream, as a primary does that has heard of no newer one."""
        random = self.world.random
        self.n += 1 if random.random() < 0.8 else 2
        version = Version(self.member.epoch, self.n)
        mark = Mark(*self.place, version)
        marks = [random.choice(made[-4:]) for up in self.world.shape[self.place] if (made := self.world.made[up])]
        requires = merged([self.owed, [one for one in marks if random.random() < 0.7 and not self.logs.dead(one)]])
        self.world.made[self.place].append(mark)
        if random.random() < 0.85:
            self.outbox.append(Manifest(version, self.chain, requires, self.member.name))
            requires = ()
        self.owed = requires  # it coalesces into the next one, which rests on the same

    def tidy(self):
        for name in self.retention.obsolete(self.logs.log(self.place).history, self.logs.newest_durable(self.place)):
            self.outbox.append(name)
            self.retention.tombstoned(name)


CHANCES = {
    "members_read": 40,
    "a_gate_reads": 15,
    "messages_arrive": 30,
    "a_primary_writes": 40,
    "a_failover_is_wanted": 3,
    "a_primary_tidies": 4,
    "the_log_is_compacted": 4,
    "a_gate_begins_anew": 1,
    "a_member_is_killed": 1,
    "a_member_changes_pace": 2,
}


class World:
    """One run."""

    def __init__(
        self,
        seed,
        shape,
        *,
        member_type=Member,
        logs_type=Logs,
        key=version_log.key,
        retries=0.0,
    ):
        """`retries`: how often a writer appends a record again."""
        self.random = Random(seed)
        self.shape = shape
        self.member_type = member_type
        self.logs_type = logs_type
        self.key = key
        self.retries = retries
        self.names = count(1)
        self.logs = {place: Log() for place in shape}
        self.control = []
        self.made = {place: [] for place in shape}  # every version that a primary sent out in a message
        self.final = {}
        self.reigning = {}
        self.problems = set()
        self.processes = [Process(self, place) for place in shape for _ in range(2)]
        self.gates = [Reader(self), Reader(self)]

    def run(self, steps=1_500):
        try:
            for _ in range(steps):
                self.step()
        except CheckpointError as error:
            text = str(error)
            self.problems.add("the base is older than a durable version" if "older than the durable" in text else text)
        return self

    def step(self):
        process = self.random.choice(self.processes)
        (what,) = self.random.choices(list(CHANCES), list(CHANCES.values()))
        getattr(self, what)(process)

    def a_member_changes_pace(self, process):
        """One that reads slowly is a zombie before it knows; what one sends slowly comes after the next one's fence."""
        process.reads, process.sends = self.random.choices([1.0, 1.0, 0.1], k=2)

    def members_read(self, process):
        if self.random.random() > process.reads:
            return
        for place in [process.place, *self.random.choices(list(self.shape), k=2)]:
            for _ in range(self.random.randint(1, 6)):
                process.step_versions(place)
        process.step_control()
        process.step_control()

    def a_gate_reads(self, process):
        gate = self.random.choice(self.gates)
        for _ in range(self.random.randint(1, 8)):
            gate.read(process.place)

    def messages_arrive(self, process):
        for _ in range(self.random.randint(1, 3)):
            if self.random.random() < process.sends:
                self.flush(process)

    def a_primary_writes(self, process):
        if process.member.role is Role.PRIMARY:
            process.write()

    def a_failover_is_wanted(self, process):
        peers = [other for other in self.processes if other.place == process.place]
        if self.random.random() < 0.3 or not any(peer.member.role is Role.PRIMARY for peer in peers):
            process.want()

    def a_primary_tidies(self, process):
        if process.member.role is Role.PRIMARY:
            process.tidy()

    def the_log_is_compacted(self, process):
        self.compact(process.place)

    def a_gate_begins_anew(self, process):
        self.gates[self.random.randrange(len(self.gates))] = Reader(self)

    def a_member_is_killed(self, process):
        while process.outbox and self.random.random() < 0.5:  # what it has sent may still arrive
            self.flush(process)
        self.processes[self.processes.index(process)] = Process(self, process.place)

    def flush(self, process):
        if not process.outbox:
            return
        record = process.outbox.pop(0)
        if isinstance(record, Claim):
            self.control.append(record)
        elif isinstance(record, str):
            self.logs[process.place].append(record, None)
        else:
            self.logs[process.place].append(self.key(record), record)
            if self.random.random() < self.retries:
                process.outbox.append(record)

    def compact(self, place):
        """Delete some superseded records, none that a reader still needs who keeps up (min.compaction.lag.ms)."""
        log = self.logs[place]
        readers = [*self.processes, *self.gates]
        for offset, later in log.superseded():
            kept = any(reader.at[place] <= offset and later >= reader.ends[place] for reader in readers)
            if not kept and self.random.random() < 0.7:
                log.gone.add(offset)

    def judged(self, reader):
        """Compare what a reader says with what it, and everybody else, has ever said."""
        for made in self.made.values():
            for mark in made[-12:]:
                fate = reader.logs.fate(mark)
                before = reader.said.get(mark)
                if before in FINAL and fate is not before:
                    self.problems.add(f"a reader goes from {before.value} to {fate.value}")
                reader.said[mark] = fate
                if fate in FINAL and self.final.setdefault(mark, fate) is not fate:
                    self.problems.add("a version is durable and dead")

    def reigns(self, process, epoch):
        name = process.member.name
        if self.reigning.setdefault((process.place, epoch), name) != name:
            self.problems.add("two primaries of one epoch")

    def marks(self):
        return [mark for made in self.made.values() for mark in made]


def problems(seeds, shape=CHAIN, until=None, **changes):
    """All problems of some runs; up to the first run with a problem that says `until`, if that is given."""
    found = set()
    for seed in seeds:
        found |= World(seed, shape, **changes).run().problems
        if until is not None and any(until in problem for problem in found):
            break
    return found
