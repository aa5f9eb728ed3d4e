"""A local worker's process: its command line, its start, and how its end is noticed and told."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.models.adapters import placed
from spillway.agents.workers import shim
from spillway.agents.workers.identity import source_of
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.topology.spec import StageSpec

BLAS_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # read when a BLAS is loaded


def exit_of(process: subprocess.Popen[bytes] | None) -> str:
    """Return how a local worker ended, as a text in brackets, where its end is known within a moment."""
    if process is None:
        return ""
    try:
        code = process.wait(0.5)
    except subprocess.TimeoutExpired:
        return ""
    return f" (killed by {signal.Signals(-code).name})" if code < 0 else f" (exit code {code})"


def started(command: Callable[[int], Sequence[str]]) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a local worker in a session of its own; returns our end of its socket, and its process.

    A terminal's Ctrl-C reaches its front alone, which decides, and the worker's group can be ended with it.
    """
    mine, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            command(theirs.fileno()), pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, start_new_session=True
        )
    return mine, process


def command_of(spec: StageSpec, torch_threads: int) -> Callable[[int], Sequence[str]]:
    """The command line of a local worker of a stage, for the descriptor that it inherits.

    Raises ModelError where the stage names an interpreter that is not there.
    """
    workers = spec.workers
    job = job_of(spec, torch_threads)
    env = [] if workers.threads is None else ["env", *(f"{name}={workers.threads}" for name in BLAS_THREADS)]
    if workers.python is None:
        start = [*env, sys.executable, "-m", "spillway.agents.workers.local"]
        return lambda descriptor: [*start, str(descriptor), json.dumps(job)]
    python = shutil.which(workers.python)
    if python is None:
        raise ModelError(f"stage {spec.name!r}: there is no interpreter {workers.python!r}, its workers' 'python'")
    found = None if spec.model is None else source_of(spec.model, [*sys.path, str(Path.cwd())])
    job["arguments"] = placed(spec.arguments)  # that interpreter finds no files itself
    job["path"] = list(dict.fromkeys([str(Path.cwd()), *([] if found is None else [found[0]])]))
    start = [*env, python, str(shim.__file__)]
    return lambda descriptor: [*start, str(descriptor), json.dumps(job)]


def job_of(spec: StageSpec, torch_threads: int) -> dict[str, Any]:
    """What a worker's command line tells it of its stage."""
    return {
        "stage": spec.name,
        "model": spec.model,
        "arguments": spec.arguments,
        "device": spec.workers.device,
        "torch_threads": spec.workers.threads or torch_threads,
        "path": sys.path,
    }
