"""Models tried in a process of their own, for `spillway check --models`: what they import, and how they crash, is its.

One process tries them one after the other, so that torch is imported once. Where it dies, the model that it was at is
to blame, and another process goes on with the next. It leads a session: what models start and leave ends with it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway.agents.models.declared import UndeclaredError, try_model
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection

    from spillway.agents.models.stateful import Kind

_END_SECONDS = 10.0
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """A stage's model and what its stage declares."""

    stage: str
    model: str
    arguments: Mapping[str, Any]
    state: Kind | None
    publishes: bool = False
    section: tuple[str, ...] = ()  # of the stage, where the model is written, if that is not the stage itself


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with a model; `field` is the field at fault, of the stage or of its `section`."""

    stage: str
    field: str
    text: str
    section: tuple[str, ...] = ()


def verdicts(trials: Sequence[ModelCheck], within: float = 180.0) -> Iterator[Verdict]:
    """Try the models in order, each for `within` seconds at most; nothing is told of those that are fine."""
    left = list(trials)
    while left:
        answers, died = _run(left, within)
        yield from (answer for answer in answers if answer is not None)
        if died:
            at = left[len(answers)]
            yield Verdict(at.stage, "model", f"stage {at.stage!r}: model {at.model!r}: {died}", at.section)
        left = left[len(answers) + 1 :]


def _run(trials: Sequence[ModelCheck], within: float) -> tuple[list[Verdict | None], str]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    # No daemon: such a process may have no children, and a model might.
    process = context.Process(target=_try_all, args=(theirs, list(trials)), name="trial")
    process.start()
    theirs.close()
    answers: list[Verdict | None] = []
    hangs = False
    try:
        with contextlib.suppress(EOFError, OSError):
            while len(answers) < len(trials) and not hangs:
                died = _awaited(ours, process, within)
                hangs = not (died or ours.poll())
                if ours.poll():
                    answers.append(ours.recv())
                elif died:
                    break
        if len(answers) < len(trials) and not hangs:
            _awaited(None, process, _END_SECONDS)  # how it ended is to be told
    finally:
        _end(process)
        ours.close()
    if hangs:
        return answers, f"it was not constructed within {within:g} s, the limit for starting a process"
    too_early = len(answers) < len(trials)
    return answers, f"its process died during a trial construction (exit code {process.exitcode})" if too_early else ""


def _awaited(pipe: Connection | None, process: multiprocessing.process.BaseProcess, within: float) -> bool:
    """Wait for something on the pipe or the process's end; whether it has ended. What it has forked may hold both."""
    until = time.monotonic() + within
    while process.exitcode is None and time.monotonic() < until:
        if pipe is None:
            time.sleep(_LOOK_SECONDS)
        elif pipe.poll(_LOOK_SECONDS):
            return False
    return process.exitcode is not None


def _end(process: multiprocessing.process.BaseProcess) -> None:
    """End a process and what it has started, however far it is."""
    assert process.pid is not None  # it was started
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # there is no such group before it has begun
    process.kill()
    process.join()


def _try_all(pipe: Connection, trials: Sequence[ModelCheck]) -> None:
    os.setsid()
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    for trial in trials:
        verdict = None
        try:
            try_model(trial.stage, trial.model, trial.arguments, trial.state, publishes=trial.publishes)
        except ModelError as error:
            field = "state" if isinstance(error, UndeclaredError) else "model"
            verdict = Verdict(trial.stage, field, str(error), trial.section)
        pipe.send(verdict)
    sys.stderr.flush()
    os._exit(0)  # whatever threads and children the models have left
