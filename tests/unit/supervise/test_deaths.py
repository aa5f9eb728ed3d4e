"""A death is waited for no longer than asked, also where the system cannot tell of it."""

import errno
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from spillway.agents.supervise.child import wait_for_a_death
from spillway.agents.workers import forks


@pytest.fixture
def running():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process


def test_a_death_is_heard_at_once(running):
    running.kill()
    began = time.monotonic()
    wait_for_a_death([SimpleNamespace(unreaped=running), SimpleNamespace(unreaped=None)], 300.0)
    assert time.monotonic() - began < 300.0


def test_where_no_descriptor_tells_of_a_death_the_time_passes(running, monkeypatch):
    def none(_pid):
        raise OSError(errno.ENOSYS, "the kernel has none")

    monkeypatch.setattr(forks.os, "pidfd_open", none)
    began = time.monotonic()
    wait_for_a_death([SimpleNamespace(unreaped=running)], 0.1)
    assert time.monotonic() - began >= 0.1
