"""One supervised process: its command, its log, its life.

A standby's process can go on as another child's: it has loaded what that one has, and waits for a line on its stdin
that tells it whose place to take. Its log stays where it is; the child whose place it takes has that log from then on.
"""

from __future__ import annotations

import math
import os
import random
import select
import signal
import subprocess
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spillway.agents.log import tail
from spillway.agents.supervise.lifecycle import ALIVE, ENDED, Action, Event, Lifecycle, RestartPolicy
from spillway.agents.workers.forks import end_group, watch_of
from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

STAGE, STANDBY, MEMBER, GATE, TUNER, GATEWAY = "stage", "standby", "member", "gate", "tuner", "gateway"
NO_GROUP = frozenset({STANDBY, TUNER, GATEWAY})  # roles of processes that read no input
_CAUTIOUS_FROM = 2  # deaths that no service has made good
_TAIL_BYTES = 64 * 1024
_REAP_SECONDS = 10.0
_ERROR_MARKS = ("error: ", "spillway: ")  # how our own processes begin to say why they end


@dataclass(frozen=True)
class ChildPlan:
    """What to run for one replica, one standby, one member of a stateful stage, the gate, the tuner, or a gateway."""

    stage: str
    replica: int  # of a standby: which one
    role: str  # STAGE, STANDBY, MEMBER, GATE, TUNER or GATEWAY
    command: Sequence[str]
    environment: Mapping[str, str] | None = None  # in place of the supervisor's own
    label: str = ""  # its name, where that is not stage and replica
    shard: int = 0  # of a member
    member: str = ""  # of a member: its name without the time of its start
    waits: bool = False  # it is ready when a worker has come that a person starts

    @property
    def name(self) -> str:
        return self.label or f"{self.stage}.{self.replica}"

    @property
    def group(self) -> str:
        """What it shares a consumer group with: a replica with its stage; a member is in one of its own."""
        return self.name if self.role == MEMBER else self.stage


class Child:
    """A plan, the process that runs for it now if one does, and the decisions about it."""

    def __init__(self, plan: ChildPlan, log: Path, policy: RestartPolicy, now: float) -> None:
        self.plan = plan
        self.log = log
        patient = replace(policy, start_timeout=math.inf) if plan.waits else policy
        self.life = Lifecycle(patient, now, random.random)
        self._process: subprocess.Popen[bytes] | None = None
        self._first_log = log
        self._member = ""  # the name of the process that runs, where it is a member's
        self._dead_member: str | None = None
        self._lent = 0  # processes that went to take another child's place
        self._not_started = ""  # why no process could be started the last time

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.life.state in ALIVE else None

    @property
    def unreaped(self) -> subprocess.Popen[bytes] | None:
        """The process as long as nobody has asked how it ended: until then its id is its own."""
        return self._process if self._process is not None and self._process.returncode is None else None

    def step(self, now: float, *, ready: bool) -> None:
        exit_code = self._process.poll() if self._process is not None else None
        if exit_code is not None and self.pid is not None:
            self._bury()
        self._do(self.life.step(now, exit_code=exit_code, ready=ready))

    def take_dead_member(self) -> str | None:
        """The name of the member's process that was found dead, once; None where there is nothing new."""
        dead, self._dead_member = self._dead_member, None
        return dead

    def stop(self, now: float) -> None:
        self._do(self.life.take(now, Event.STOP))

    def stalled(self, now: float) -> bool:
        """End the process because it is wedged; whether that was done."""
        action = self.life.take(now, Event.STALLED)
        self._do(action)
        return action is Action.KILL

    def kill(self) -> None:
        """End the process at once, without a word, and wait until it is gone."""
        if self._process is not None and self._process.poll() is None:
            end_group(self._process.pid)
            self._process.wait(_REAP_SECONDS)

    def take_over(self, standby: Child, now: float) -> bool:
        """Go on with the process of a standby that waits; False if that one is not there to be told any more."""
        process = standby.lend(f"take {self.plan.replica}\n", now)
        if process is None:
            return False
        self._process, self.log, self._not_started = process, standby.log, ""
        standby.log = standby.next_log()
        standby.log.unlink(missing_ok=True)  # of a supervisor before this one
        self.life.take(now, Event.TAKEN_OVER)
        return True

    def lend(self, word: str, now: float) -> subprocess.Popen[bytes] | None:
        """Say the word to the standby's process and let go of it; None if it does not hear it."""
        process = self._process
        if process is None or process.stdin is None or process.poll() is not None:
            return None
        try:
            process.stdin.write(word.encode())
            process.stdin.close()
        except OSError:  # it died this very moment
            return None
        self._process = None
        self._lent += 1
        self.life.lent(now)
        return process

    def next_log(self) -> Path:
        """Where the next process of a standby writes: the one that was lent keeps its own."""
        return self._first_log.with_suffix(f".{self._lent}{self._first_log.suffix}")

    def last_words(self) -> str:
        """Why it ended, in its own words: the error that it printed, else the last line of its log."""
        if self._not_started:
            return self._not_started
        lines = [line for line in tail(self.log, _TAIL_BYTES).splitlines() if line.strip()]
        errors = [n for n, line in enumerate(lines) if line.startswith(_ERROR_MARKS)]
        return "\n".join(lines[errors[-1] :][:8]) if errors else "".join(lines[-1:])

    def describe_end(self) -> str:
        code = self.life.exit_code
        if self._not_started:
            return "could not be started"
        if code is None:
            return "has not run"
        if code < 0:
            try:
                return f"was ended by {signal.Signals(-code).name}"
            except ValueError:
                return f"was ended by signal {-code}"
        return f"ended with code {code}"

    def _bury(self) -> None:
        if self._process is not None:
            end_group(self._process.pid)  # what its model has left
            if self._process.stdin is not None:
                self._process.stdin.close()
        if self._member:
            self._dead_member, self._member = self._member, ""

    def _do(self, action: Action) -> None:
        if action is Action.START:
            self._start()
        elif self._process is not None and action is Action.TERMINATE:
            self._process.terminate()
        elif self._process is not None and action is Action.KILL:
            self._process.kill()

    def _start(self) -> None:
        # A stage that died twice without a service that made it good runs its model in worker processes.
        cautious = self.plan.role == STAGE and self.life.deaths >= _CAUTIOUS_FROM
        try:
            with self.log.open("ab") as output:
                # A session of its own: Ctrl-C on the terminal is for the supervisor, which stops all in its order.
                self._process = subprocess.Popen(
                    [*self.plan.command, *self._named(), *(["--cautious"] if cautious else ())],
                    stdin=subprocess.PIPE if self.plan.role == STANDBY else subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=self.plan.environment,
                    start_new_session=True,
                )
        except OSError as error:
            why = f"cannot start {self.plan.name} ({self.plan.command[0]}): {error}"
            if not self.life.established:
                raise UsageError(why) from error
            self._not_started = why  # the machine is short of something for a while: the others serve on
            self.life.step(self.life.since, exit_code=os.EX_OSERR, ready=False)
        else:
            self._not_started = ""

    def _named(self) -> list[str]:
        """A member's process has a name of its own at every start: what is said of one is not said of the next."""
        if not self.plan.member:
            return []
        self._member = f"{self.plan.member}@{time.time_ns() // 1_000_000}"
        return ["--member-name", self._member]


def wait_for_a_death(children: Sequence[Child], seconds: float) -> None:
    """Return when one of the children's processes ends, at the latest after `seconds`.

    Where the system does not tell it at once the `seconds` pass, and whoever looks then finds the dead.
    """
    poll = select.poll()
    processes = (child.unreaped for child in children)
    watched = [watch for each in processes if each is not None and (watch := watch_of(each.pid)) is not None]
    try:
        for watch in watched:
            poll.register(watch, select.POLLIN)
        poll.poll(1000 * seconds)
    finally:
        for watch in watched:
            os.close(watch)


def ended(children: Sequence[Child]) -> bool:
    return all(child.life.state in ENDED for child in children)
