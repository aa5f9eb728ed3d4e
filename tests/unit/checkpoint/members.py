"""Those who live in a random history: the log that they share, readers, and a shard's members."""

from spillway.checkpoint.claims import Claims
from spillway.checkpoint.promotion import Append, Load
from spillway.checkpoint.retention import Retention
from spillway.checkpoint.versions import Mark, Version
from spillway.lineage.marks import merged
from spillway.lineage.replication import Manifest


class Log:
    """One version log: (key, record) in order, None for a tombstone; compaction leaves gaps."""

    def __init__(self):
        self.records = []
        self.gone = set()

    def append(self, name, record):
        self.records.append((name, record))

    def whole(self):
        return [record for _, record in self.records if record is not None]

    def left(self):
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
