"""Random histories: members that claim, reign, die and write late; logs that are compacted at any moment; readers.

Everything that a run's members decide is decided by the real `Member`, `Claims` and `Logs`, each on what it has read so
far. `World.problems` says what went wrong: two readers that disagree, a reader that goes back on its word, two
primaries of one epoch, a log that contradicts itself.
"""

from itertools import count
from random import Random

from spillway.checkpoint import version_log
from spillway.checkpoint.logs import Fate, Logs
from spillway.checkpoint.promotion import Member, Role
from spillway.lineage.errors import CheckpointError
from spillway.lineage.replication import Claim
from tests.unit.checkpoint.members import Log, Process, Reader

# Upstream shards of each shard.
CHAIN = {("a", 0): [], ("b", 0): [("a", 0)], ("c", 0): [("b", 0)]}
DIAMOND = {("a", 0): [], ("b", 0): [("a", 0)], ("c", 0): [("a", 0)], ("d", 0): [("b", 0), ("c", 0)]}
ALONE = {("a", 0): []}
FINAL = (Fate.DURABLE, Fate.DEAD)

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
    def __init__(self, seed, shape, *, member_type=Member, logs_type=Logs, key=version_log.key, retries=0.0):
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
