"""Runs one command and sees to it that it does not outlive the process that asked for it.

A script of the standard library alone, started as `python -I -S guard.py LOG COMMAND...`. Its standard input is a pipe
whose other end the asking process holds: when that closes, because the process ended in whatever way, the command is
stopped, unless a byte came before: then the command goes on. It prints the command's process id, and exits as the
command does. On Linux the kernel also ends the command when the guard itself is killed.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 1.0  # a pipe end that leaked into a fork of the asking process never closes: its id tells then
_GRACE_SECONDS = 10.0


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _stop(child: "subprocess.Popen[bytes]") -> None:
    child.terminate()
    try:
        child.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()


def main() -> int:
    log, *command = sys.argv[1:]
    asker = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the asking process, which stops us in its order
    signal.set_wakeup_fd(_wakeup_fd())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with open(log, "ab") as output:  # noqa: PTH123 - pathlib would double the guard's start time
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - the guard has one thread
        )
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    print(child.pid, flush=True)  # into the pipe that the asking process reads
    watched = [0]
    while child.poll() is None:
        ready, _, _ = select.select([*watched, _WAKEUP[0]], [], [], _POLL_SECONDS)
        if _WAKEUP[0] in ready:
            os.read(_WAKEUP[0], 64)
        if 0 in ready and os.read(0, 1):
            watched = []
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # whoever reads what the asking process says sees it end
        elif watched and (0 in ready or os.getppid() != asker):
            _stop(child)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


_WAKEUP: list[int] = []


def _wakeup_fd() -> int:
    read, write = os.pipe()
    for end in (read, write):
        os.set_blocking(end, False)
    _WAKEUP[:] = [read, write]
    return write


if __name__ == "__main__":
    sys.exit(main())
