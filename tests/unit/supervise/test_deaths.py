"""A death is waited for no longer than asked, also where the system cannot tell of it."""

import errno
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from spillway.agents.supervise import child as children
from spillway.agents.supervise.child import Child, ChildPlan, wait_for_a_death
from spillway.agents.supervise.lifecycle import RestartPolicy, State
from spillway.agents.workers import forks
from spillway.lineage.errors import UsageError


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


def test_a_process_that_cannot_be_started_for_a_while_is_tried_again_and_ends_nobody_else(tmp_path, monkeypatch):
    def popen(*_command, **_more):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    child = Child(ChildPlan("a", 0, "stage", ["true"]), tmp_path / "a.log", RestartPolicy(), 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(children.subprocess, "Popen", popen)
        with pytest.raises(UsageError, match=r"cannot start a\.0"):
            child.step(0.0, ready=False)
        child = Child(child.plan, child.log, RestartPolicy(), 0.0)
        child.life.established = True
        child.step(1.0, ready=False)
        assert child.life.died
        assert 1.0 < child.life.due < 60.0
        assert child.describe_end() == "could not be started"
        assert "Resource temporarily unavailable" in child.last_words()
        child.step(child.life.due, ready=False)
        assert child.life.deaths == 2
    child.step(child.life.due, ready=False)
    assert child.life.state is State.STARTING
    child.kill()
    assert child.last_words() == ""
