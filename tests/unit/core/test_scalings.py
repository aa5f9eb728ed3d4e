"""Pools, tuners, people and claims in virtual time, under random deaths: sizes have one owner, and no query is lost."""

import random
from collections import Counter, deque
from dataclasses import dataclass, field

import pytest

from spillway.agents.core.pool import Pool, Start
from spillway.agents.core.workers import Phase
from spillway.checkpoint.owners import Candidate, Claim, Leave, Owner, Tenure
from spillway.topology.capacity.tuner import Basis, Tuner
from spillway.topology.sizes import Size, claimed_as
from tests.planned import planned

TICK = 0.5
STAGES = {"a": planned(2, 36.0), "b": planned(3, 24.0)}
BASIS = Basis(16.0, {0.5: 8, 1.0: 16, 2.0: 32, 4.0: 64, 8.0: 128}, STAGES)  # as even as what comes
CHAOS, QUIET = 120.0, 150.0
LOADS, WORKS = 3.0, 0.5


class World:
    def __init__(self, seed):
        self.rng, self.now, self.arrived = random.Random(seed), 0.0, 0
        self.claims, self.dead = [], set()  # the log of owners, and who is known to be gone
        self.records, self.sizes = [], {}  # the table of sizes
        self.pids, self.writers = 0, {}  # by epoch, who may write
        for name, stage in STAGES.items():
            self.append(name, Size(stage.count, "file", "", 0.0, 1, "d"), None)

    def owner(self):
        self.pids += 1
        return Owner("h", self.pids, float(self.pids), "m")

    def claim(self, word):
        """A word is appended; a claim that wins may write from now on."""
        self.claims.append(word)
        if isinstance(word, Claim):
            self.writers[word.epoch] = word.owner

    def append(self, stage, size, owner):
        assert owner is None or self.writers[size.epoch] == owner, "the epoch is that of the writer's own claim"
        self.records.append((stage, size))
        if stage not in self.sizes or size.epoch >= self.sizes[stage].epoch:  # as `spillway.agents.live.sizes` has it
            self.sizes[stage] = size


@dataclass
class Writer:
    """A process that claims stages' sizes: it reads the log of owners, and has late writes on their way."""

    world: World
    me: Owner
    names: tuple[str, ...]
    take_over: bool = False
    read: int = 0
    tenure: Tenure | None = None
    paused: float = 0.0
    late: deque = field(default_factory=deque)  # (when it lands, stage, size)

    def __post_init__(self):
        self.candidate = Candidate(
            self.me, [claimed_as(n) for n in self.names], self.world.dead.__contains__, take_over=self.take_over
        )

    @property
    def lost(self):
        return self.tenure is not None and (self.tenure.lost_to or self.tenure.asked_by) is not None

    def land(self):
        while self.late and self.late[0][0] <= self.world.now:
            _, stage, size = self.late.popleft()
            self.world.append(stage, size, self.me)

    def turn(self):
        """Read the log of owners to its end, answer, and try to own; whether it does."""
        while self.read < len(self.world.claims):
            word = self.world.claims[self.read]
            self.read += 1
            if self.tenure is not None:
                answer = self.tenure.take(word)
                if answer is not None:
                    self.world.claim(answer)
                continue
            self.candidate.take(word)
            if self.candidate.won is not None:
                self.tenure = Tenure(self.candidate.won, self.candidate.owners)
        if self.tenure is None:
            self.candidate.above = max(size.epoch for size in self.world.sizes.values())
            word = self.candidate.next(self.world.now, self.world.now)
            if word is not None:
                self.world.claim(word)
        return self.tenure is not None and not self.lost

    def write(self, stage, count, *, held=False, after=0.0):
        size = Size(count, self.me.name, "", self.world.now, self.tenure.claim.epoch, "d", held)
        self.late.append((self.world.now + after, stage, size))
        self.land()

    def leave(self):
        self.world.claim(Leave(self.tenure.claim.epoch))


class TunerProcess:
    """As `spillway.agents.supervise.tuner` goes about it: one claim after the other, of all stages that nobody
    holds."""

    def __init__(self, world):
        self.world, self.me, self.orders = world, world.owner(), Counter()
        self.writer = self.tuner = None
        self.again = 0.0

    def mine(self):
        return tuple(name for name in STAGES if not self.world.sizes[name].held)

    def turn(self):
        world = self.world
        if self.writer is None and world.now >= self.again and self.mine():
            self.writer = Writer(world, self.me, self.mine())
        if self.writer is None or world.now < self.writer.paused:
            return
        self.writer.land()
        if self.writer.candidate.refused is not None:
            self.writer, self.again = None, world.now + 5.0
        elif not self.writer.turn():
            if self.writer.lost:
                self.end()
        elif self.mine() != self.writer.names:
            self.end()
        else:
            self.tune()

    def tune(self):
        world, epoch = self.world, self.writer.tenure.claim.epoch
        if self.tuner is None:
            self.tuner = Tuner(BASIS)
        self.tuner.count(world.now, world.arrived)
        for name in self.mine():
            if world.sizes[name].epoch > epoch:
                self.end()
                return
            self.tuner.stands(world.now, name, world.sizes[name].count)
        if self.writer.late:
            return
        for name, order in self.tuner.orders(world.now).items():
            self.writer.write(name, order.count, after=world.rng.choice([0.0, 0.0, 1.0, 4.0]))
            self.orders[name] += 1
        if (
            world.now < CHAOS and world.rng.random() < 0.01
        ):  # it hangs, maybe between an order and its write, and longer than a lease
            self.writer.paused = world.now + world.rng.uniform(1, 30)

    def end(self):
        self.writer.leave()
        self.writer, self.tuner, self.again = None, None, self.world.now + 1.0


class Front:
    """A stage's front: its pool follows the table; queries wait, run, and are answered once."""

    def __init__(self, world, stage):
        self.world, self.stage = world, stage
        self.pool = Pool(world.sizes[stage].count)
        self.due = {}  # by worker: when it is loaded
        self.running = {}  # by worker: (when it is done, its batch)
        self.batch = int(STAGES[stage].throughput * WORKS)

    def turn(self, waiting, answered):
        now = self.world.now
        self.pool.resize(self.world.sizes[self.stage].count)
        for action in self.pool.take(now):
            if isinstance(action, Start):
                self.due[action.worker] = now + LOADS
            else:
                self.due.pop(action.worker, None)
        for worker in [w for w, due in self.due.items() if due <= now]:
            del self.due[worker]
            self.pool.ready(now, worker)
        for worker in [w for w, (done, _) in self.running.items() if done <= now]:
            answered.update(self.running.pop(worker)[1])
            self.pool.completed(now, worker)
        for worker, phase in self.pool.phases().items():
            if phase is Phase.READY and waiting:
                batch = [waiting.popleft() for _ in range(min(self.batch, len(waiting)))]
                self.running[worker] = (now + WORKS, batch)
                self.pool.began(now, worker)

    @property
    def under_way(self):
        return sum(len(batch) for _, batch in self.running.values())

    def kill(self, worker, waiting):
        self.due.pop(worker, None)
        if worker in self.running:
            waiting.extendleft(self.running.pop(worker)[1])
        self.pool.lost(self.world.now, worker)

    def die(self, waiting):
        """What was not answered comes again, to the next front."""
        waiting.extendleft(query for _, batch in self.running.values() for query in batch)


def person(world):
    stage = world.rng.choice(list(STAGES))
    hold = world.rng.random() < 0.5
    return Writer(world, world.owner(), (stage,), take_over=hold), hold


def play(seed):
    world = World(seed)
    rng, tuners, people = world.rng, [TunerProcess(world)], []
    fronts = {name: Front(world, name) for name in STAGES}
    back = dict.fromkeys(STAGES, 0.0)
    waiting, answered, rate = {name: deque() for name in STAGES}, {name: Counter() for name in STAGES}, 16
    while world.now < CHAOS + QUIET:
        world.now += TICK
        chaos = world.now < CHAOS
        rate = rng.choice([0, 8, 16, 40, 60]) if chaos and rng.random() < 0.03 else rate if chaos else 16
        for _ in range(int(rate * TICK)):
            for name in STAGES:
                waiting[name].append(world.arrived)
            world.arrived += 1
        for tuner in tuners:
            tuner.turn()
        for writer, hold in list(people):
            writer.land()
            if writer.turn():
                held = hold and chaos
                writer.write(writer.names[0], rng.randint(1, 6), held=held)
                writer.leave()
            if writer.tenure is not None or writer.candidate.refused is not None:
                people.remove((writer, hold))
        for name, front in fronts.items():
            if front is not None:
                front.turn(waiting[name], answered[name])
            elif world.now >= back[name]:
                fronts[name] = Front(world, name)
        if chaos:
            strike(world, tuners, people, fronts, back, waiting)
        elif not people and any(size.held for size in world.sizes.values()):  # at last nothing is held
            stage = next(name for name, size in world.sizes.items() if size.held)
            people.append((Writer(world, world.owner(), (stage,)), False))
    return world, tuners, fronts, waiting, answered


def strike(world, tuners, people, fronts, back, waiting):
    rng = world.rng
    if rng.random() < 0.03 and len(people) < 2:
        people.append(person(world))
    if people and rng.random() < 0.02:  # a person's command is killed, maybe with its claim
        writer, _ = people.pop()
        world.dead.add(writer.me)
    every = rng.random() < 0.01  # the supervisor dies, and all with it
    for name, front in fronts.items():
        if front is None:
            continue
        if every or rng.random() < 0.01:
            front.die(waiting[name])
            fronts[name], back[name] = None, world.now + 2.0
        elif rng.random() < 0.05 and front.pool.phases():
            front.kill(rng.choice(list(front.pool.phases())), waiting[name])
    if every or rng.random() < 0.02:
        world.dead.add(tuners[-1].me)
        if rng.random() < 0.5:  # what it had sent lands all the same, after its successor came
            tuners[-1].turn = tuners[-1].writer.land if tuners[-1].writer is not None else lambda: None
        else:
            tuners.pop()
        tuners.append(TunerProcess(world))


@pytest.mark.parametrize("seed", [*range(40), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(40, 200))])
def test_whatever_dies_sizes_have_one_owner_and_every_query_is_answered_once(seed):
    world, tuners, fronts, waiting, answered = play(seed)
    stood = {name: world.records[n][1] for n, name in enumerate(STAGES)}
    for stage, size in world.records[len(STAGES) :]:
        if size.epoch >= stood[stage].epoch:
            assert not stood[stage].held or size.epoch > stood[stage].epoch, "what is held is another one's to change"
            stood[stage] = size
    for name, stage in STAGES.items():
        assert set(answered[name].values()) <= {1}
        assert len(answered[name]) + len(waiting[name]) + fronts[name].under_way == world.arrived
        assert len(waiting[name]) < 16, "the load is served"
        assert not world.sizes[name].held
        assert world.sizes[name].count == stage.count, f"back at the plan: {world.sizes[name].text}"
        assert fronts[name].pool.there == stage.count
    assert tuners[-1].writer.tenure is not None
