"""One supervised process: its command, its log, its life."""

from __future__ import annotations

import random
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.supervise.lifecycle import ALIVE, Action, Lifecycle, RestartPolicy, State
from lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_TAIL_BYTES = 64 * 1024
_REAP_SECONDS = 10.0
_ERROR_MARKS = ("error: ", "spillway: ")  # how our own processes begin to say why they end


@dataclass(frozen=True)
class ChildPlan:
    """What to run for one replica, or the gate. `environment` replaces the supervisor's own where it is given."""

    stage: str
    replica: int
    role: str  # "stage" or "gate"
    command: Sequence[str]
    environment: Mapping[str, str] | None = None

    @property
    def name(self) -> str:
        """Stage and replica."""
        return f"{self.stage}.{self.replica}"


class Child:
    """A plan, the process that runs for it now if one does, and the decisions about it."""

    def __init__(self, plan: ChildPlan, log: Path, policy: RestartPolicy, now: float) -> None:
        self.plan = plan
        self.log = log
        self.life = Lifecycle(policy, now, random.random)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process's id while the child is alive."""
        return self._process.pid if self._process is not None and self.life.state in ALIVE else None

    def step(self, now: float, *, ready: bool) -> None:
        """Look at the process and do what its life asks for."""
        exit_code = self._process.poll() if self._process is not None else None
        self._do(self.life.step(now, exit_code=exit_code, ready=ready))

    def stop(self, now: float) -> None:
        """Ask the process to end, for good."""
        self._do(self.life.stop(now))

    def stalled(self, now: float) -> bool:
        """End the process because it is wedged; whether that was done."""
        action = self.life.stalled(now)
        self._do(action)
        return action is Action.KILL

    def kill(self) -> None:
        """End the process at once, without a word, and wait until it is gone."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(_REAP_SECONDS)

    def last_words(self) -> str:
        """Why it ended, in its own words: the error that it printed, else the last line of its log."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
                lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        except FileNotFoundError:
            return ""
        errors = [n for n, line in enumerate(lines) if line.startswith(_ERROR_MARKS)]
        return "\n".join(lines[errors[-1] :][:8]) if errors else "".join(lines[-1:])

    def describe_end(self) -> str:
        """How the last process of this child ended."""
        code = self.life.exit_code
        if code is None:
            return "has not run"
        if code < 0:
            try:
                return f"was ended by {signal.Signals(-code).name}"
            except ValueError:
                return f"was ended by signal {-code}"
        return f"ended with code {code}"

    def _do(self, action: Action) -> None:
        if action is Action.START:
            self._start()
        elif self._process is not None and action is Action.TERMINATE:
            self._process.terminate()
        elif self._process is not None and action is Action.KILL:
            self._process.kill()

    def _start(self) -> None:
        try:
            with self.log.open("ab") as output:
                # A session of its own: Ctrl-C on the terminal is for the supervisor, which stops all in its order.
                self._process = subprocess.Popen(
                    self.plan.command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=self.plan.environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise UsageError(f"cannot start {self.plan.name} ({self.plan.command[0]}): {error}") from error


def ended(children: Sequence[Child]) -> bool:
    """Whether none of them will run again."""
    return all(child.life.state in {State.STOPPED, State.FAILED} for child in children)
