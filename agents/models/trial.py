"""Models tried in a process of their own, for `spillway check --models`: what they import, and how they crash, is its.

One process tries them one after the other, so that torch is imported once. Where it dies, the model that it was at is
to blame, and another process goes on with the next.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agents.models.declared import UndeclaredError, try_model
from lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection

    from agents.models.stateful import Kind


@dataclass(frozen=True, slots=True)
class Trial:
    """A stage's model and what its stage declares."""

    stage: str
    model: str
    arguments: Mapping[str, Any]
    state: Kind | None
    publishes: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with a model; `field` is the stage's field that is at fault."""

    stage: str
    field: str
    text: str


def verdicts(trials: Sequence[Trial], within: float = 180.0) -> Iterator[Verdict]:
    """Try the models in order, each for `within` seconds at most; nothing is told of those that are fine."""
    left = list(trials)
    while left:
        answers, died = _run(left, within)
        yield from (answer for answer in answers if answer is not None)
        if died:
            at = left[len(answers)]
            yield Verdict(at.stage, "model", f"stage {at.stage!r}: model {at.model!r}: {died}")
        left = left[len(answers) + 1 :]


def _run(trials: Sequence[Trial], within: float) -> tuple[list[Verdict | None], str]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_try_all, args=(theirs, list(trials)), daemon=True, name="trial")
    process.start()
    theirs.close()
    answers: list[Verdict | None] = []
    hangs = False
    with contextlib.suppress(EOFError, OSError):
        while len(answers) < len(trials) and not hangs:
            hangs = not ours.poll(within)
            if not hangs:
                answers.append(ours.recv())
    if hangs:
        process.kill()
    process.join()
    ours.close()
    if hangs:
        return answers, f"it was not constructed within {within:g} s, the limit for starting a process"
    too_early = len(answers) < len(trials)
    return answers, f"its process died during a trial construction (exit code {process.exitcode})" if too_early else ""


def _try_all(pipe: Connection, trials: Sequence[Trial]) -> None:
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    for trial in trials:
        verdict = None
        try:
            try_model(trial.stage, trial.model, trial.arguments, trial.state, publishes=trial.publishes)
        except ModelError as error:
            field = "state" if isinstance(error, UndeclaredError) else "model"
            verdict = Verdict(trial.stage, field, str(error))
        pipe.send(verdict)
