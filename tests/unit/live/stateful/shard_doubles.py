"""Two members of one shard on one clock and one pair of logs, all of it in memory."""

from types import SimpleNamespace

from spillway.agents.run import shard_roles as roles
from spillway.agents.run.log_reader import CONTROL, Read
from spillway.agents.run.shard_roles import RoleDriver
from spillway.checkpoint import claims, version_log
from spillway.checkpoint.claims import Claims
from spillway.checkpoint.leases import Lease
from spillway.checkpoint.logs import Logs
from spillway.checkpoint.promotion import Member, Role
from spillway.checkpoint.roles import Roles
from spillway.checkpoint.versions import INITIAL
from spillway.lineage.marks import Version
from spillway.lineage.replication import Beat, Claim, Fence, Manifest, Yield

PLACE, UP = ("learn", 0), ("up", 0)


class Clock:
    """An event loop's timers; time stands still but for `advance`."""

    def __init__(self):
        self.now, self._timers = 100.0, []

    def time(self):
        return self.now

    def call_at(self, when, callback, *args):
        timer = Timer(when, callback, args)
        self._timers.append(timer)
        return timer

    def call_later(self, seconds, callback, *args):
        return self.call_at(self.now + seconds, callback, *args)

    def advance(self, seconds):
        until = self.now + seconds
        while due := [timer for timer in self._timers if timer.due <= until]:
            timer = min(due, key=lambda each: each.due)
            self._timers.remove(timer)
            self.now = max(self.now, timer.due)
            if not timer.cancelled:
                timer.callback(*timer.args)
        self.now = until


class Timer:
    def __init__(self, when, callback, args):
        self.due, self.callback, self.args, self.cancelled = when, callback, args, False

    def cancel(self):
        self.cancelled = True

    def when(self):
        return self.due


class InLine:
    """In place of a thread: runs what it is given at once."""

    def submit(self, run, done):
        done(run())


class Doer:
    """What a member does about its role, noted (`Acts`); and its appender, which appends when the shard delivers."""

    def __init__(self):
        self.done, self.appended, self.keys = [], [], set()
        self.down = None  # what the appender fails with

    @property
    def turns(self):
        """What was done about the role alone."""
        return [what for what in self.done if what != "emit again"]

    def load(self, epoch, version):
        self.done.append(("load", epoch, version))

    def stand_down(self):
        self.done.append("stand down")

    def emit_again(self):
        self.done.append("emit again")

    def append(self, record, _acked=None):
        if self.down is not None:
            raise self.down
        key = claims.key(record) if isinstance(record, (Claim, Yield)) else version_log.key(record)
        assert key not in self.keys, f"{key} was appended twice"
        self.keys.add(key)
        self.appended.append(record)


class Shard:
    """The members, and the logs that all of them read in one order."""

    def __init__(self, monkeypatch, members=2):
        self.clock = Clock()
        monkeypatch.setattr(roles.asyncio, "get_running_loop", lambda: self.clock)
        self.offset, self.beats, self.crashes = 0, 0, []
        self.doers = [Doer() for _ in range(members)]
        self.active = [[] for _ in range(members)]
        self.names = [f"p.learn.0.{index}@1" for index in range(members)]
        self.members = [
            RoleDriver(
                Roles(Member(PLACE, name, Claims(), Logs([PLACE, UP])), index, Lease(1.0)),
                doer,
                clock=SimpleNamespace(now=lambda: 0.0),
                appender=doer,
                read_to_end=lambda _place, then: then(),
                active=self.active[index].append,
                crashed=self.crashes.append,
            )
            for index, (name, doer) in enumerate(zip(self.names, self.doers, strict=True))
        ]
        for member in self.members:
            for place in (PLACE, UP):
                member.core.logs.caught_up(place)

    def prepares(self, index, before_fence):
        self.members[index]._before_fence, self.members[index].core._prepares = before_fence, True

    def append(self, place, record):
        """Have everybody read a record."""
        self.offset += 1
        for member in self.members:
            member.take(Read(place, "", record, self.offset, "log"))

    def settle(self):
        """Have all that is appended read, until nothing more comes of it."""
        while waiting := [doer for doer in self.doers if doer.appended]:
            record = waiting[0].appended.pop(0)
            self.append(CONTROL if isinstance(record, (Claim, Yield)) else PLACE, record)

    def beat(self, *indices):
        """Deliver these members' beats to everybody, a tenth of a second later."""
        self.clock.advance(0.1)
        self.beats += 1
        for index in indices:
            self.members[index].sent(self.clock.now, self.beats)
        for index in indices:
            for member in self.members:
                beat = Beat(*PLACE, self.names[index], 0, "", self.beats, 0, INITIAL)
                member.heard(beat, self.clock.now)

    def begun(self):
        """Member 0 is the primary of epoch 1, and all are heard."""
        for member in self.members:
            member.begin()
        self.settle()
        self.beat(*range(len(self.members)))
        assert [member.core.role for member in self.members] == [Role.PRIMARY, *[Role.BACKUP] * (len(self.members) - 1)]
        return self

    def complete(self, n, *requires):
        """Append a version of member 0."""
        history = self.members[0].core.logs.log(PLACE).history
        self.append(PLACE, Manifest(Version(history.epoch, n), history.links, requires, self.names[0]))

    def fence(self, epoch, claimant):
        self.append(PLACE, Fence(epoch, claimant))
