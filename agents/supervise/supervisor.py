"""Keeps a pipeline's processes running on one machine, until it is told to stop.

One crashed stage never takes the others down: each child is restarted by itself, with growing delays, for ever unless
it is told when to give one up; one that is given up leaves the rest serving, is shown as failed, and makes the exit
code 1 at the end. Only a pipeline that was never ready as a whole, and has answered no query under an earlier
supervisor, ends when a child has died a few times: whoever started it wants to know.

A death is seen when it happens. A replica's place is taken by a standby where one is ready (`standbys`). The other
members of a stateful shard are told at once which process of theirs is dead, so they need not wait for its silence.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from spillway.agents.models.slow import SLOW, SLOW_SECONDS
from spillway.agents.supervise.child import (
    GATE,
    MEMBER,
    NO_GROUP,
    STAGE,
    STANDBY,
    Child,
    ChildPlan,
    ended,
    wait_for_a_death,
)
from spillway.agents.supervise.console import STOPPED_EARLY, Answered, FirstFailures, Silence, last_traceback, of_gate
from spillway.agents.supervise.groups import MetricsReader, Observer
from spillway.agents.supervise.lifecycle import FENCED, FLAPS_FROM, RestartPolicy, State
from spillway.agents.supervise.registry import entries
from spillway.agents.supervise.table import Row
from spillway.agents.supervise.watchdog import Movement, Watchdog, keeps_up
from spillway.checkpoint.promotion import Role
from spillway.lineage.reasons import MODEL_RAISED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from spillway.agents.live.states.beats import Reporter
    from spillway.agents.supervise.groups import KafkaGroups
    from spillway.agents.supervise.ownership import Ownership
    from spillway.agents.supervise.watchdog import GroupSight


# Who takes over from the dead: a standby that is ready goes on in a dead replica's place.
#
# A replica of a stateless stage that died, and is not given up, is taken over by a standby of its stage, if one waits
# with its model loaded: at its death, or later while it still backs off. Where none does, the replica itself is started
# again as always. Each standby that went is replaced by a new one, so the stage has as many as before, a moment later.


def hand_over(children: Sequence[Child], now: float) -> list[tuple[Child, Child]]:
    """Tell standbys to take over from who died; returns the replicas, each with its standby."""
    done = []
    for replica in children:
        if replica.plan.role != STAGE or not replica.life.died:
            continue
        for standby in children:
            waits = standby.plan.role == STANDBY and standby.life.state is State.RUNNING
            if waits and standby.plan.stage == replica.plan.stage and replica.take_over(standby, now):
                done.append((replica, standby))
                break
    return done


log = logging.getLogger(__name__)

_TICK_SECONDS = 0.05
_READY_LOOK_SECONDS = 0.1
_SETTLED_TICK_SECONDS = 0.25  # while all children run: a death is seen at once all the same
_SETTLED_LOOK_SECONDS = 0.5
_LOOKS_PER_STALL = 6
_LONGEST_LOOK_SECONDS = 2.0  # between looks at what waits
_SLOW_START_SECONDS = SLOW_SECONDS + 5.0  # when a process has said itself what its model is at
_LAST_ANSWERS_SECONDS = 1.0
_WAITING_SECONDS = 5.0  # when a process waits for workers that a person starts, and needs to be told so


@dataclass(frozen=True)
class SupervisorSettings:
    """How to supervise.

    `stall`: seconds without progress while there is work, after which a replica is restarted. `holds`: by stage, the
    seconds for which its replicas may commit nothing by right, beside those; a join that waits for a part does so.
    """

    restart: RestartPolicy = field(default_factory=RestartPolicy)
    stall: float = 30.0
    holds: Mapping[str, float] = field(default_factory=dict)

    def patience(self, stage: str) -> float:
        return self.stall + self.holds.get(stage, 0.0)


class Supervisor:
    """Runs the children of one pipeline. Not thread-safe: `run` is one thread's, `stop` may come from any.

    `say` is told, in a sentence, of everything that a person should know; `show` gets the rows several times a second;
    `keep` is called again and again, with the time, to look after what the children need, and ends everything by
    raising a `SpillwayError`; `was_ready` is set from when all children were ready for the first time.
    """

    def __init__(
        self,
        pipeline: str,
        plans: Sequence[ChildPlan],
        run_dir: Path,
        *,
        settings: SupervisorSettings | None = None,
        groups: KafkaGroups | None = None,
        say: Callable[[str], None] = log.info,
        show: Callable[[Sequence[Row]], None] = lambda _rows: None,
        keep: Callable[[float], None] = lambda _now: None,
    ) -> None:
        self.was_ready = False
        self._settled = False  # whether all children run
        self._hurry = False
        self._keep = keep
        self._words: dict[str, str] = {}  # by place: what its last process said in the end
        self.obituaries: Reporter | None = None  # where deaths of members are told
        self.owned: Ownership | None = None
        self._confirmed: dict[str, threading.Event] = {}  # by child that was fenced
        self._pipeline = pipeline
        self._run_dir = run_dir
        self._settings = settings or SupervisorSettings()
        self._say, self._show = say, show
        logs = run_dir / pipeline / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        now = time.monotonic()
        self.children = [Child(plan, logs / f"{plan.name}.log", self._settings.restart, now) for plan in plans]
        for child in self.children:
            child.log.write_bytes(b"")
        watched = {plan.group: self._settings.patience(plan.stage) for plan in plans if plan.role not in NO_GROUP}
        every = min(self._settings.stall / _LOOKS_PER_STALL, _LONGEST_LOOK_SECONDS)
        self._watchdogs = {
            group: Watchdog(patience, longest_gap=self._settings.stall) for group, patience in watched.items()
        }
        self._observer = Observer(MetricsReader(run_dir, pipeline), groups, sorted(watched), every)
        self._movement = Movement()
        self._failures, self._answered = FirstFailures(), Answered()
        self._silence, self._lag = Silence(), 0
        self._metrics = MetricsReader(run_dir, pipeline)  # for a last look, in this thread
        self._began_to_drain: dict[str, State] = {}  # by name: what a child was at when it was asked to end
        self._called_slow: set[str] = set()  # names of processes that were said to start slowly
        self._judged_at = now
        self._told: dict[str, tuple[State, int]] = {}
        self._looked_at = 0.0
        self._ready: frozenset[tuple[str, int]] = frozenset()  # names and process ids

    def run(self, stop: threading.Event) -> int:
        """Keep the children running until `stop` is set, then let them drain; returns the exit code, 0 or 1."""
        self._observer.start()
        try:
            while not stop.is_set() and not self._is_hopeless():
                self._tick()
                wait_for_a_death(self.children, _SETTLED_TICK_SECONDS if self._settled else _TICK_SECONDS)
            if not stop.is_set():
                self._say(f"{self._pipeline} ends: " + ("nothing is left running" if self.was_ready else "not started"))
            self._drain()
            if stop.is_set():
                self._say(f"stopped; {self._answered.total} answered" if self.was_ready else STOPPED_EARLY)
        finally:
            self.kill()
            self._observer.stop()
        return 1 if any(child.life.state is State.FAILED for child in self.children) else 0

    def served_before(self) -> None:
        """Go on trying from the beginning: the pipeline has answered queries before."""
        for child in self.children:
            child.life.served_before = True

    def hurry(self) -> None:
        """Do not wait for the drain any longer; may be called from a signal handler."""
        self._hurry = True

    def kill(self) -> None:
        for child in self.children:
            child.kill()

    def rows(self) -> list[Row]:
        return [
            Row(
                child.plan.name,
                _shown(child),
                self._observer.figures.get(child.plan.name) if child.life.state is State.RUNNING else None,
                child.life.restarts,
            )
            for child in self.children
        ]

    def _is_hopeless(self) -> bool:
        failed = any(child.life.state is State.FAILED for child in self.children)
        return ended(self.children) or (failed and not self.was_ready)

    def _tick(self) -> None:
        now = time.monotonic()
        look = now - self._looked_at >= (_SETTLED_LOOK_SECONDS if self._settled else _READY_LOOK_SECONDS)
        if look:
            self._looked_at = now
            self._ready = frozenset((e.name, e.pid) for e in entries(self._run_dir, self._pipeline) if e.ready)
            self._movement.note(now, {name: seen.moved for name, seen in self._observer.figures.items()})
        for child in self.children:
            child.life.progressed = self._movement.last(child.plan.name)
            child.step(now, ready=(child.plan.name, child.pid) in self._ready)
        self._report_deaths()
        self._clear_fenced(now)
        for replica, standby in hand_over(self.children, now):
            self._say(f"{replica.plan.name} {replica.describe_end()}; {standby.plan.name} takes its place")
        for child in self.children:
            self._tell(child, now)
        if look:
            self._tell_failures()
            queued = any(seen.queue for seen in self._observer.figures.values())
            self._silence.note(now, self._answered.total, waiting=queued or self._lag > 0)
        self._judge(now)
        self._settled = all(child.life.state is State.RUNNING for child in self.children)
        if not self.was_ready and self._settled:
            self.was_ready = True
            for child in self.children:
                child.life.established = True
        self._keep(now)
        if look:
            self._show(self.rows())

    def _report_deaths(self) -> None:
        for child in self.children:
            member = child.take_dead_member()
            if member is not None and self.obituaries is not None:
                self.obituaries.report(child.plan.stage, child.plan.shard, member)

    def _clear_fenced(self, now: float) -> None:
        """Start a child that was fenced only once it is known that its place has not been taken over."""
        for child in self.children:
            if not child.life.fenced:
                self._confirmed.pop(child.plan.name, None)
            elif child.plan.name not in self._confirmed:
                confirmed = self._confirmed[child.plan.name] = threading.Event()
                (confirmed.set if self.owned is None else partial(self.owned.confirm, confirmed.set))()
            elif self._confirmed[child.plan.name].is_set():
                child.life.cleared(now)

    def _judge(self, now: float) -> None:
        seen = self._observer.take_sights()
        if seen is None:
            return
        (at, sights), figures = seen, self._observer.figures
        self._lag = sum(sight.lag for sight in sights.values())
        for group, sight in sights.items():
            running = {
                child.plan.replica: child
                for child in self.children
                if child.plan.role not in NO_GROUP and child.plan.group == group and child.life.state is State.RUNNING
            }
            since = {replica: child.life.since for replica, child in running.items()}
            moved = any(self._movement.last(child.plan.name) > self._judged_at for child in running.values())
            follows = self._only_follows(group, sights)
            waits = {
                partition
                for replica, child in running.items()
                for partition in (figures[child.plan.name].waits if child.plan.name in figures else ())
                if partition in sight.partitions and sight.partitions[partition].owner == replica
            }
            for replica in self._watchdogs[group].observe(at, sight, since, excused=follows, moving=moved, waits=waits):
                child = running[replica]
                if child.stalled(now):
                    self._say(
                        f"{child.plan.name} made no progress for {self._settings.patience(child.plan.stage):g} s "
                        f"({sight.lag} records wait): killing and restarting it"
                    )
        self._judged_at = now

    def _only_follows(self, group: str, sights: Mapping[str, GroupSight]) -> bool:
        """Whether the group is that of a backup that says so, and that has come as far as its shard."""
        if not self._is_backup(group):
            return False
        shard = group.rpartition(".")[0]
        return keeps_up(sights[group], (sight for name, sight in sights.items() if name.rpartition(".")[0] == shard))

    def _is_backup(self, name: str) -> bool:
        told = self._observer.figures.get(name)
        return told is not None and told.state_role == Role.BACKUP.value

    def _tell(self, child: Child, now: float) -> None:
        state = (child.life.state, child.life.restarts)
        before = self._told.get(child.plan.name)
        if state == before:
            self._tell_slow(child, now)
            return
        self._told[child.plan.name] = state
        self._called_slow.discard(child.plan.name)
        if child.life.died and child.life.exit_code == FENCED:
            self._say(
                f"{child.plan.name} was fenced: another process ran under its ids; it restarts once {self._pipeline} "
                f"is confirmed to be served from here{self._because(child)}"
            )
        elif child.life.died and before is not None:
            self._say(
                f"{child.plan.name} {child.describe_end()}; restarting in {child.life.due - now:.1f} s "
                f"({_tries(child)}){self._because(child)}"
            )
        elif child.life.state is State.FAILED:
            self._say(
                f"{child.plan.name} FAILED: it {child.describe_end()} and is given up{self._because(child, again=True)}"
            )
        elif child.life.state is State.RUNNING:
            self._say(f"{child.plan.name} is ready (process {child.pid})")

    def _tell_slow(self, child: Child, now: float) -> None:
        """Name, once a start, a process that is not ready for long and moves nothing: its model may hang."""
        name, since = child.plan.name, max(child.life.since, self._movement.last(child.plan.name))
        soon = _WAITING_SECONDS if child.plan.waits else _SLOW_START_SECONDS
        if child.life.state is not State.STARTING or name in self._called_slow or now - since < soon:
            return
        self._called_slow.add(name)
        if child.plan.waits:
            self._say(f"{name} waits for a worker: start one with 'spillway worker' (its log is {child.log})")
            return
        words = child.last_words()
        because = f"\n  {name}: {words}" if SLOW in words else ""
        self._say(
            f"{name} is not ready after {_SLOW_START_SECONDS:g} s; it has {self._settings.restart.start_timeout:g} s "
            f"(its log is {child.log}){because}"
        )

    def _tell_failures(self) -> None:
        self._answered.note(of_gate(self._observer.figures))
        for child in self.children:
            seen = self._observer.figures.get(child.plan.name)
            if seen is None or child.plan.role == GATE:
                continue
            for reason in self._failures.news(child.plan.stage, seen):
                trace = last_traceback(child.log) if reason == MODEL_RAISED else ""
                because = "".join(f"\n  {line}" for line in trace.splitlines())
                self._say(f"{child.plan.name}: a query failed ({reason}){because}\n  (its log is {child.log})")

    def unanswered(self) -> float:
        """Return for how many seconds queries have waited and none was answered; may be called from any thread."""
        return self._silence.seconds(time.monotonic())

    def _drain(self) -> None:
        self._began_to_drain = {child.plan.name: child.life.state for child in self.children}
        for wave in self._waves():
            if self.was_ready and any(child.plan.role == GATE for child in wave):
                self._count_answers()
            for child in wave:
                child.stop(time.monotonic())
            while not ended(wave):
                if self._hurry:
                    self.kill()
                for child in wave:
                    child.step(time.monotonic(), ready=False)
                    self._tell_stopped(child)
                self._report_deaths()
                wait_for_a_death(wave, _TICK_SECONDS)

    def _count_answers(self) -> None:
        """Read the gate's count once more, before it ends, until it has what the stages sent it last."""
        until = time.monotonic() + _LAST_ANSWERS_SECONDS
        before = -1
        while self._answered.total != before and time.monotonic() < until and not self._hurry:
            before = self._answered.total
            time.sleep(_TICK_SECONDS)
            self._answered.note(of_gate(self._metrics.read(time.monotonic())))

    def _waves(self) -> list[list[Child]]:
        """Replicas and backups, then primaries, then the gate.

        A primary has a backup take over before it stops. Here nobody is to: that the backups have ended, it is told.
        """
        members = {child.plan.name for child in self.children if child.plan.role == MEMBER}
        later = {name for name in members if not self._is_backup(name)}
        waves: list[list[Child]] = [[], [], []]
        for child in self.children:
            waves[2 if child.plan.role == GATE else child.plan.name in later].append(child)
        return waves

    def _because(self, child: Child, *, again: bool = False) -> str:
        """Give the last words of a child that has ended; the same ones only if they are to be said `again`."""
        name, words = child.plan.name, child.last_words()
        if not words:
            return f" (its log is {child.log})"
        if self._words.get(name) == words and not again:
            return " (as before)"
        self._words[name] = words
        return f"\n  {name}: {words}\n  (its log is {child.log})"

    def _tell_stopped(self, child: Child) -> None:
        if child.life.state is State.STOPPED and self._told.get(child.plan.name) != (State.STOPPED, 0):
            self._told[child.plan.name] = (State.STOPPED, 0)
            asked = self._began_to_drain.get(child.plan.name) is State.STARTING  # it ends by what asks it to
            if child.life.exit_code and not (asked and child.life.exit_code == -signal.SIGTERM):
                self._say(f"{child.plan.name} did not end cleanly: it {child.describe_end()}{self._because(child)}")


def _shown(child: Child) -> str:
    state = child.life.state
    return STANDBY if child.plan.role == STANDBY and state is State.RUNNING else state.value


def _tries(child: Child) -> str:
    left = child.life.deaths_left
    if left is None:
        deaths = child.life.deaths
        return f"death {deaths} in a row; no limit on restarts" if deaths >= FLAPS_FROM else "no limit on restarts"
    return f"{left} more tries"
