"""What can go wrong with a pipeline that has states, as functions of a run under load; moments are seeded.

Each gives the row of docs/failover.md that it belongs to, and is judged by the oracle alone: it does nothing but harm.
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psutil

from tests.link_traffic import PRODUCE
from tests.torture.bench import Run

LEASE = 1.0
_HELD_SECONDS = 310.0


@dataclass(frozen=True)
class Fault:
    row: str  # of the table of failures
    shape: str
    strike: Callable[[Run, Random], None]
    prepare: Callable[[Run, Random], None] = lambda _run, _rng: None
    through_link: bool = False
    compacted: bool = False
    nodes: int = 1  # brokers
    arguments: dict[str, Any] = field(default_factory=dict)
    count: int = 300  # queries
    rate: float = 100.0  # of them a second
    backlog: bool = False  # it strikes while 20 s of work wait
    options: tuple[str, ...] = ()  # of `spillway serve`


def begin(run, rng):
    """Let some queries through first; where there is a backlog so many that a part of it waits at each stage."""
    run.answered(rng.randrange(100, 1_000) if run.backlog else rng.randrange(20, 120))


def over(run, stage, *, by):
    """Do it, and wait for a new reign over the stage."""
    epoch = run.base(stage).epoch
    by()
    run.reigns_anew(stage, epoch)


# One process ---------------------------------------------------------------------------------------------------


def primary_dies(run, rng):
    begin(run, rng)
    stage = rng.choice(run.stateful)
    over(run, stage, by=lambda: run.kill(run.primary(stage)))


def second_dies(run, rng):
    """The primary of the second stateful stage, before which most of a backlog waits."""
    begin(run, rng)
    over(run, run.stateful[1], by=lambda: run.kill(run.primary(run.stateful[1])))
    run.go_on()


def backup_dies(run, rng):
    """A backup, at any moment; then the primary that it leaves alone, once it is back."""
    begin(run, rng)
    stage = rng.choice(run.stateful)
    run.kill(run.backup(stage))
    run.go_on()


def gate_dies(run, rng):
    begin(run, rng)
    run.kill("gate.0")
    run.go_on()


def gate_rebalances(run, rng):
    """A second gate takes a part of the first one's partitions, and one of the two dies."""
    begin(run, rng)
    run.second_gate()
    run.go_on()
    run.kill(rng.choice(["gate.0", "gate.1"]))
    run.go_on()


def held_for_long(run, rng):
    """For more than five minutes the gate, and the stateless stage before it, do not hear which versions are durable;
    when the gate has released what it held, and the stage has not committed it, that stage dies and repeats it.
    """
    begin(run, rng)
    run.faulted = time.time()
    deaf = {run.process(label).pid for label in ("gate.0", "t.0")}
    run.bench.link.shape(lambda link: link.client == "log" and link.pid in deaf, held=True, direction="down")
    time.sleep(_HELD_SECONDS)
    stage = run.process("t.0").pid
    run.bench.link.shape(lambda link: link.pid in deaf and link.pid != stage)
    run.go_on()
    run.kill("t.0")
    run.bench.link.reset()
    run.go_on()


def stateless_dies(run, rng):
    """The stage between, or before, two that have states."""
    begin(run, rng)
    run.kill("t.0")
    run.go_on()


def front_dies(run, rng):
    """The stage that queries a learner's table, while observations go on."""
    begin(run, rng)
    run.kill("rank.0")
    run.go_on()


def at_point(point, *, member):
    """The process of a stage dies at a crash point: the first primary, or its backup once it has followed."""

    def prepare(run, rng):
        stage = rng.choice(run.stateful)
        rare = point.endswith(("claim", "fence")) or member
        # Amid its chunks a version is mostly when it is a reign's first: the others are one chunk or two.
        count = 1 if rare else rng.randrange(1, 3 if point.startswith("amid") else 40)
        run.order(f"{stage}.0.{member}", f"{point}:{count}")

    def strike(run, rng):
        label, pid = run.ordered()
        stage = label.partition(".")[0]
        run.watch(pid)
        begin(run, rng)
        if psutil.pid_exists(pid) and run.primary(stage) != label:  # the first to be ready has reigned since then
            run.kill(run.primary(stage))
        run.dies(label, pid)
        run.go_on()

    return prepare, strike


# Split brain ---------------------------------------------------------------------------------------------------


def primary_sleeps(run, rng):
    """A primary stands still beyond its lease, is followed, and wakes up."""
    begin(run, rng)
    stage = rng.choice(run.stateful)
    epoch = run.base(stage).epoch
    (pid,) = run.signal(run.primary(stage), number=signal.SIGSTOP)
    try:
        run.reigns_anew(stage, epoch)
        time.sleep(rng.uniform(0.0, LEASE))
    finally:
        os.kill(pid, signal.SIGCONT)
    run.go_on()


def primary_dozes(run, rng):
    """A primary stands still for about its lease: it may be followed or not, and must find out which."""
    begin(run, rng)
    stage = rng.choice(run.stateful)
    (pid,) = run.signal(run.primary(stage), number=signal.SIGSTOP)
    try:
        time.sleep(LEASE * rng.uniform(0.7, 1.6))
    finally:
        os.kill(pid, signal.SIGCONT)
    run.go_on()


# Several at once -----------------------------------------------------------------------------------------------


def neighbours_die(run, rng):
    begin(run, rng)
    epochs = {stage: run.base(stage).epoch for stage in run.stateful}
    run.kill(*(run.primary(stage) for stage in run.stateful))
    for stage, epoch in epochs.items():
        run.reigns_anew(stage, epoch)


def shard_dies(run, rng):
    begin(run, rng)
    stage = rng.choice(run.stateful)
    over(run, stage, by=lambda: run.kill(f"{stage}.0.0", f"{stage}.0.1"))


def all_die(run, rng):
    begin(run, rng)
    epochs = {stage: run.base(stage).epoch for stage in run.stateful}
    run.kill(*(entry.name for entry in run.entries() if entry.alive()))
    for stage, epoch in epochs.items():
        run.reigns_anew(stage, epoch)


def several_die(run, rng):
    """Two to four processes, one after the other, whoever they are then."""
    for _ in range(rng.randrange(2, 5)):
        begin(run, rng)
        time.sleep(rng.uniform(0, 0.5))
        names = sorted(entry.name for entry in run.entries() if entry.alive())
        run.kill(rng.choice(names))


def primary_and_backup_in_turn_die(run, rng):
    """A primary, and the backup that follows it a moment later."""
    begin(run, rng)
    stage = rng.choice(run.stateful)
    follower = run.backup(stage)
    run.kill(run.primary(stage))
    time.sleep(rng.uniform(0.0, 0.3))
    over(run, stage, by=lambda: run.kill(follower))


# The network and the broker ------------------------------------------------------------------------------------


def figure_6(run, rng):
    """The first stage's state does not get to the log, while its outputs do and the next stage's states rest on them;
    then the first one's primary dies, and the next one's backup.
    """
    begin(run, rng)
    topic = f"{run.name}.a.state".encode()
    held = []

    def hold(link, api, head):
        if api == PRODUCE and topic in head and len(held) < 1:
            held.append(link)
            link.hold()

    run.bench.link.watch(hold)
    before = run.sent("b")
    run.until(lambda: held and run.sent("b") > before + 20, "the next stage goes on without the first one's states")
    epoch = run.base("a").epoch
    run.kill(run.primary("a"), run.backup("b"))
    run.reigns_anew("a", epoch)


def link_is_slow(run, rng):
    """Everything that one primary sends is slow and late; then it dies."""
    stage = rng.choice(run.stateful)
    label = run.primary(stage)
    pid = run.process(label).pid
    run.bench.link.shape(lambda link: link.pid == pid, rate=rng.uniform(1e5, 1e6), delay=rng.uniform(0, 0.05))
    begin(run, rng)
    over(run, stage, by=lambda: run.kill(label))


def link_is_cut(run, rng):
    """All connections of one primary break, three times."""
    stage = rng.choice(run.stateful)
    for _ in range(3):
        begin(run, rng)
        pid = run.process(run.primary(stage)).pid
        run.faulted = run.faulted or time.time()
        run.bench.link.cut(lambda link, pid=pid: link.pid == pid)  # type: ignore[misc]
        run.go_on(20)


def broker_restarts(run, rng):
    """The broker is killed, is away for a while, and comes back with its data."""
    _broker_goes(run, rng, run.bench.broker.kill)


def broker_is_stopped(run, rng):
    """The broker is stopped as an operator does it, which has ways of its own to go wrong, and comes back."""
    _broker_goes(run, rng, run.bench.broker.stop)


def _broker_goes(run, rng, go):
    begin(run, rng)
    run.faulted = time.time()
    go()
    time.sleep(rng.uniform(0.0, 2.0))
    run.bench.broker.start()
    run.go_on(20, 60)


def compaction_and_deaths(run, rng):
    """Compaction takes whatever it may, again and again, while primaries die."""
    for _ in range(2):
        run.go_on(60)
        stage = rng.choice(run.stateful)
        over(run, stage, by=lambda stage=stage: run.kill(run.primary(stage)))  # type: ignore[misc]
