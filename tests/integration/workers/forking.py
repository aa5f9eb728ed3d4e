"""A model that starts processes and threads, as its inputs say, and keeps what belongs to the thread it is made on."""

import contextlib
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.waiting import until

SECONDS = 60.0
FORK = multiprocessing.get_context("fork")
ACTS = ("pool", "executor", "program", "shell", "threads", "lost_thread", "exits", "comes_back", "interrupted")


class Forks:
    def __init__(self):
        self.database = sqlite3.connect(":memory:")  # raises where another thread uses it
        self.early = FORK.Pool(1)

    def predict(self, batch):
        return [{"y": getattr(self, each["act"])(each["x"])} for each in batch]

    def pool(self, x):
        with FORK.Pool(2) as pool:  # which ends its children by SIGTERM
            return pool.map(abs, [x, x])[0] + self.early.apply(abs, [0])

    def executor(self, x):
        children = [FORK.Process(target=time.sleep, args=(600,)) for _ in range(8)]
        for child in children:
            child.start()
        for child in children:
            child.terminate()  # some before they have begun
        for child in children:
            child.join()
        # Another thread that starts a process looks after this one's children, too: between its wait for one and its
        # note of how that ended, `join` returns here without knowing.
        until(lambda: all(child.exitcode is not None for child in children), SECONDS)
        return x if all(child.exitcode == -signal.SIGTERM for child in children) else -1

    def program(self, x):
        told = subprocess.run(
            [sys.executable, "-S", "-c", f"print({x})"], capture_output=True, text=True, check=True, close_fds=False
        )
        return int(told.stdout)

    def shell(self, x):
        assert os.system("sleep 600 & exit 0") == 0
        return x

    def threads(self, x):
        with ThreadPoolExecutor(2) as pool:
            return max(pool.map(abs, [x, x]))

    def lost_thread(self, x):
        threading.Thread(target=time.sleep, args=(600,)).start()
        return x

    def exits(self, x):
        child = os.fork()
        if not child:
            sys.exit(3)
        return x if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3 else -1

    def comes_back(self, x):
        child = os.fork()
        if not child:
            return -2
        return x if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 else -1

    def interrupted(self, x):
        program = subprocess.Popen(["sleep", "600"])
        program.send_signal(signal.SIGINT)
        return x if program.wait() == -signal.SIGINT else -1

    def leaves(self, _x):
        child = FORK.Process(target=time.sleep, args=(600,))
        child.start()
        return child.pid

    def hands_down(self, _x):
        """Start a program that has all sockets of this process, as code does that forks for itself."""
        for each in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # the listing's own is closed
                os.set_inheritable(int(each.name), True)
        return subprocess.Popen(["sleep", "600"], close_fds=False).pid

    def dies(self, _x):
        os.kill(os.getpid(), signal.SIGKILL)

    def uses_database(self, x):
        return self.database.execute("select ?", [x]).fetchone()[0]
