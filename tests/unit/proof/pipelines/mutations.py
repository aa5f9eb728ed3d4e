"""Faults planted in the drivers, each of which the oracle must find: what a mutation replaces, and where.

`python -m tests.unit.proof.pipelines.mutations` searches the first seed that shows each, and writes pins.json.
"""

import json
import logging
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from unittest.mock import patch

from spillway.agents.core.actions import Work
from spillway.agents.live.stage import driver
from spillway.agents.live.stage.members import Members
from spillway.agents.live.stage.redundancy_workers import Extras
from spillway.agents.memory.groups import Ticket
from spillway.agents.memory.pulled_input import MemoryPulledInput
from spillway.agents.proof.pipelines import play
from spillway.agents.proof.pipelines.case import Fault, Kind
from spillway.agents.proof.pipelines.drawing import drawn
from spillway.agents.proof.pipelines.oracle import judged
from spillway.agents.run import stage as stages
from spillway.agents.run.alarm import Alarm
from spillway.agents.run.gate import Gate
from spillway.agents.run.inputs import Inputs
from spillway.agents.run.stage import Stage
from spillway.agents.testing import front, gate
from spillway.lineage.errors import SilentError
from spillway.lineage.ports import Commit

MOST = 300  # schedules in which a mutation is to be found
SECONDS = 25.0  # after its last fault until which a run is to be done: all are by 7 s that have no fault planted
FILE = Path(__file__).parent / "pins.json"

MUTATIONS = {}  # by name: a function that returns a context manager which plants it


def mutation(name, where=driver, replaced="Stage"):
    """Return a decorator of what this mutation puts in the place of something."""

    def register(mutant):
        MUTATIONS[name] = partial(patch.object, where, replaced, mutant)
        return mutant

    return register


def gate_mutation(name):
    return mutation(name, gate, "Gate")


# The stage -------------------------------------------------------------------------------------------------------


@mutation("a commit after revoke")
class CommitsAfterRevoke(Stage):
    """What it has done of partitions that went stays its own: it commits it when they come back."""

    def _let_go(self, now, partition):
        pass


@mutation("a chunk of an old assignment is delivered")
class DeliversOldChunks(Stage):
    _assignment = property(lambda self: 0, lambda self, value: None)


@mutation("a commit before send")
class CommitsBeforeSend(Stage):
    """A message counts as stored once it is made."""

    def _emit(self, now, output, emit):
        self._core.acked_all([emit])
        return super()._emit(now, output, emit)


@mutation("a commit of what was taken")
class CommitsWhatWasTaken(Stage):
    def commits(self):
        found = super().commits()
        return found | {p: Commit(self._positions[p], found[p].metadata) for p in found if p in self._positions}


@mutation("a hit settled twice")
class SettlesHitsTwice(Stage):
    async def _answer(self, hits):
        await super()._answer(hits)
        for work, _ in hits:
            work.settled = False


@mutation("an alarm lost", stages, "Alarm")
class Late(Alarm):
    """The moment that is set is kept, though an earlier one is asked for."""

    def within(self, seconds):
        if self._timer is None:
            super().within(seconds)


@mutation("what is early is forgotten in a take over")
class ForgetsWhatIsEarly(Stage):
    async def _accept_early(self, partition, early):
        pass


@mutation("what is early counts as taken in a drain")
class DrainsWhatIsEarly(Stage):
    def stop_taking(self):
        for partition, chunks in self._early.items():
            share = self._core._shares.get(partition)
            for record in (one for _, some in chunks for one in some):
                if share is not None and share.offsets.taken(record.offset):
                    share.offsets.done(record.offset)
        super().stop_taking()


@mutation("an acknowledgement counted twice")
class CountsAcknowledgementsTwice(Stage):
    def stored(self, emits):
        works = [(emit, emit.work) for emit in emits]
        self._core.acked_all(emits)
        for emit, work in works:
            if work is not None and work.pending:
                emit.work = work
        super().stored(emits)


@mutation("a workers answer after its loss taken twice")
class TakesAnswersTwice(Stage):
    """What is run again, as its worker was lost, counts although a copy or a code has answered it meanwhile."""

    def executed(self, batch, done):
        for request in batch.requests:
            if request.deaths and isinstance(request, Work):
                request.settled = False
        super().executed(batch, done)


@mutation("an answer that is made goes to another query", front, "Extras")
class MixesUpAnswers(Extras):
    def _made(self, made):
        super()._made([(batch, results[::-1]) for batch, results in made])


@mutation("a lanes tickets leaked at retirement", front, "Members")
class LeaksTickets(Members):
    """A member that goes is closed and forgotten at once, with what waits there and runs."""

    async def _leave(self, name, crew, lane):
        crew.close(1.0)
        self._lanes.forget(lane.number)


class Nothing:
    async def read(self, partition, spans):
        return
        yield


@mutation("no memory is read in a take over")
class ReadsNoMemory(Stage):
    def __init__(self, core, clock, context):
        context.memory = Nothing()
        super().__init__(core, clock, context)


@mutation("a stage waits for room for ever")
class WaitsForRoomForEver(Stage):
    def _wake(self):
        pass

    def stored(self, emits):
        self._core.acked_all(emits)


@mutation("lost input is passed over", Inputs, "admits")
def admit_all(inputs, partition, position, bounds):
    return True


# The gate --------------------------------------------------------------------------------------------------------


@gate_mutation("a pause not asserted anew")
class PausesOnce(Gate):
    paused = False

    def _heed_room(self):
        full = not (self._core.room and self._conversions.room)
        if full != self.paused:
            self.paused = full
            super()._heed_room()


@mutation("offsets of another generation", MemoryPulledInput, "ticket")
def ticket_of_now(pulled):
    """Offsets go with whatever generation the group has now."""
    member, broker, group = pulled._member, pulled._world.broker, pulled._group

    def check(partitions):
        for partition in partitions:
            broker.own(group.name, partition, member.number)

    return Ticket(member.number, check)


@gate_mutation("an unknown commit taken for done")
class TakesUnknownForDone(Gate):
    async def start(self):
        write, open_anew = self._transactions.write, self._transactions.open

        async def written(records, offsets):
            try:
                return await write(records, offsets)
            except SilentError:
                await open_anew()
                return [(1 << 40, 0)] * len(records)

        self._transactions.write = written
        await super().start()


@gate_mutation("an unknown commit taken for nothing")
class TakesUnknownForNothing(Gate):
    async def _begin_again(self):
        self._core.stats.duplicates += 0
        await self._input.read_on({p: commit.offset for p, commit in self._standing.items()})


@gate_mutation("what was released is forgotten")
class ForgetsReleases(Gate):
    async def start(self):
        read = self._context.spans.read
        self._context.spans.read = lambda topic, spans, **options: read(
            topic, {} if topic == self._topics.egress else spans, **options
        )
        await super().start()


@gate_mutation("offsets are left out")
class LeavesOffsetsOut(Gate):
    async def start(self):
        write = self._transactions.write
        self._transactions.write = lambda records, offsets: write(records, {} if records else offsets)
        await super().start()


@gate_mutation("a gate that is ousted keeps what it knows")
class KeepsWhatItKnows(Gate):
    async def revoked(self, partitions):
        pass


def leaving(seed):
    """A drawn pipeline, of which both replicas of a stage leave and come back again and again."""
    case, random = drawn(seed), Random(seed)
    stages = [stage for stage in case.spec["stages"] if "model" in stage and "coding" not in stage]
    if not stages:
        return case
    stage = random.choice(stages)
    stage["workers"] = {**stage.get("workers", {}), "fronts": 2, "count": 2}
    case.spec["partitions"] = 4
    faults = [Fault(Kind.LEAVE, 0.1 * turn + 0.05 * random.random(), stage["name"], turn % 2) for turn in range(1, 15)]
    replicas = case.replicas | {stage["name"]: 2}
    return replace(case, replicas=replicas, queries=60, rate=60.0, kills=0.0, faults=tuple(faults))


SCHEDULES = {"what is early counts as taken in a drain": leaving}  # of what other schedules seldom show


def schedule_of(name):
    return SCHEDULES.get(name, drawn)


def said(schedule, seed):
    """Return what the oracle says of a schedule, which is given up sooner than elsewhere if it does not end."""
    with patch.object(play, "_MOST", SECONDS):
        return judged(schedule(seed), seed)[1]


def found(name, seed):
    """Return what the oracle says of a schedule that is played with a mutation."""
    with MUTATIONS[name]():
        return said(schedule_of(name), seed)


def first(name):
    """Return the first schedule that shows a mutation, and passes without it; None where none does."""
    schedule = schedule_of(name)
    return next((seed for seed in range(MOST) if found(name, seed) and not said(schedule, seed)), None)


def pins():
    return json.loads(FILE.read_text()) if FILE.exists() else {}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    for each in sys.argv[1:] or MUTATIONS:
        seed = first(each)
        print(each, seed, *(found(each, seed)[:2] if seed is not None else ()), flush=True)
        FILE.write_text(json.dumps(pins() | {each: seed}, indent=2, sort_keys=True) + "\n")
