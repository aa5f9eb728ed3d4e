"""A process's death is heard of by the mutex that it holds, whatever it dies of; processes are real."""

from __future__ import annotations

import select
import subprocess
import sys
import threading

import pytest

from agents.supervise import deathwatch
from agents.supervise.deathwatch import be_watched, watch
from lineage.errors import SpillwayError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a death is found by waiting")
HELD = "from agents.supervise.deathwatch import be_watched; be_watched({}); print(flush=True); "

CRASH = "import ctypes, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); input(); ctypes.string_at(0)"


def started(code):
    """A process that runs `code`, which may name the descriptor, and its watch."""
    watching = watch()
    process = subprocess.Popen(
        [sys.executable, "-c", code.format(watching.inherited)],
        pass_fds=[watching.inherited],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    watching.begin()
    return watching, process


def rings(watching, seconds):
    return bool(select.select([watching], [], [], seconds)[0]) and watching.rang()


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("input()", -9),
        ("import os; input(); os._exit(3)", 3),
        ("input()", 0),
        ("import os, threading; t = threading.Thread(target=lambda: (input(), os.abort())); t.start(); t.join()", -6),
        (CRASH, -11),
    ],
    ids=["killed", "left", "ended", "aborted by another thread", "crashed"],
)  # fmt: skip
def test_it_rings_once_however_the_process_ends(ending, code):
    watching, process = started(HELD + ending)
    assert process.stdout.readline()
    assert not watching.rang()
    if code == -9:
        process.kill()
    else:
        process.stdin.write(b"\n")
        process.stdin.flush()
    assert rings(watching, 30.0)
    assert not watching.rang()
    assert process.wait(600) == code
    watching.close()
    process.communicate()


def test_a_thread_that_ends_is_no_death():
    watching, process = started(
        HELD + "import threading; t = threading.Thread(target=print); t.start(); t.join(); print(flush=True); input()"
    )
    assert [process.stdout.readline() for _ in range(3)]
    assert not rings(watching, 0.1)
    process.kill()
    assert rings(watching, 30.0)
    process.communicate()
    watching.close()


def test_who_dies_before_it_is_watched_never_rings():
    watching, process = started("pass")
    process.communicate()
    watching.close()


def test_a_mutex_that_is_never_given_back_does_not_hold_the_parent(monkeypatch, caplog):
    """As where the dead one has ruined the list by which the kernel knows what it held."""
    monkeypatch.setattr(deathwatch, "_PATIENCE", 0.05)
    watching, held, over = watch(), threading.Event(), threading.Event()
    holder = threading.Thread(target=lambda: (watching._mutex.lock(), held.set(), over.wait(600)))
    holder.start()
    assert held.wait(600)
    watching.begin()
    watching.close()
    assert "without giving back" in caplog.text
    over.set()
    holder.join(600)
    assert rings(watching, 30.0)


def test_what_is_no_childs_descriptor_is_refused():
    with pytest.raises(SpillwayError, match="--deathwatch 999 is for a supervisor's children only"):
        be_watched(999)
