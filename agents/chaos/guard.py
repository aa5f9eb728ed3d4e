"""Continues (SIGCONT) the processes that its parent may have stopped, when that ends in whatever way.

A script of the standard library alone, `python -I -S guard.py`. Its standard input is a pipe from the parent: each line
has process ids, which take the place of those before. At its end the last ones are continued.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    pids = ""
    for line in sys.stdin:
        if line.endswith("\n"):
            pids = line
    for pid in pids.split():
        with contextlib.suppress(OSError):
            os.kill(int(pid), signal.SIGCONT)


if __name__ == "__main__":
    main()
