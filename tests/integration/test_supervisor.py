"""The supervisor with real processes that stand in for stages and the gate; no broker."""

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import pytest

from spillway.agents.supervise.child import ChildPlan
from spillway.agents.supervise.lifecycle import RestartPolicy, State
from spillway.agents.supervise.scrape import Figures
from spillway.agents.supervise.supervisor import Supervisor, SupervisorSettings
from spillway.agents.supervise.watchdog import GroupSight, PartitionSight
from tests.waiting import until

FAKE = Path(__file__).with_name("fake_child.py")
QUICK = RestartPolicy(max_deaths=3, first_delay=0.05, longest_delay=0.2, start_timeout=20.0, grace=10.0)


def plan(run_dir, stage, mode="good", replica=0, role="stage"):
    command = [sys.executable, str(FAKE), str(run_dir), stage, str(replica), role, mode]
    return ChildPlan(stage, replica, role, command)


await_ = partial(until, seconds=90.0)


class Run:
    """A supervisor in a thread, and what it said."""

    def __init__(self, run_dir, plans, settings=None, groups=None, obituaries=None):
        self.said = []
        self.ready = threading.Event()
        self.stop = threading.Event()
        self.code = None
        self.supervisor = Supervisor(
            "fake",
            plans,
            run_dir,
            settings=settings or SupervisorSettings(restart=QUICK),
            groups=groups,
            say=self.said.append,
            keep=lambda _now: self.ready.set() if self.supervisor.was_ready else None,
        )
        self.supervisor.obituaries = obituaries
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        self.code = self.supervisor.run(self.stop)

    def child(self, name):
        return next(child for child in self.supervisor.children if child.plan.name == name)

    def state(self, name):
        return self.child(name).life.state

    def end(self):
        self.stop.set()
        self.thread.join(600)
        assert not self.thread.is_alive()
        return self.code

    def heard(self, *words):
        return any(all(word in text for word in words) for text in self.said)


@contextmanager
def running(run_dir, plans, **kwargs):
    run = Run(run_dir, plans, **kwargs)
    try:
        yield run
    finally:
        run.supervisor.hurry()
        run.end()
        assert all(child.pid is None for child in run.supervisor.children)


def test_all_get_ready_and_drain_stages_before_the_gate(tmp_path):
    plans = [plan(tmp_path, "a"), plan(tmp_path, "b"), plan(tmp_path, "gate", role="gate")]
    with running(tmp_path, plans) as run:
        assert run.ready.wait(600)
        assert run.end() == 0
    assert (tmp_path / "ends").read_text().split()[-1] == "gate"
    assert {run.state(name) for name in ("a.0", "b.0", "gate.0")} == {State.STOPPED}


def test_one_that_dies_again_and_again_is_given_up_and_the_rest_serves_on(tmp_path):
    (tmp_path / "a.well").touch()
    ends = SupervisorSettings(restart=replace(QUICK, give_up=3))
    with running(tmp_path, [plan(tmp_path, "a", "crash"), plan(tmp_path, "b")], settings=ends) as run:
        assert run.ready.wait(600)
        (tmp_path / "a.well").unlink()
        os.kill(run.child("a.0").pid, signal.SIGKILL)
        await_(lambda: run.state("a.0") is State.FAILED)
        assert run.heard("a.0", "FAILED", "it happened again")
        assert run.state("b.0") is State.RUNNING
        assert run.thread.is_alive()
        assert run.end() == 1


def test_without_an_end_one_that_dies_again_and_again_comes_back_when_it_can(tmp_path):
    (tmp_path / "a.well").touch()
    with running(tmp_path, [plan(tmp_path, "a", "crash"), plan(tmp_path, "b")]) as run:
        assert run.ready.wait(600)
        (tmp_path / "a.well").unlink()
        os.kill(run.child("a.0").pid, signal.SIGKILL)
        life = run.child("a.0").life
        await_(lambda: life.restarts >= 2 * QUICK.max_deaths)
        assert life.flaps(time.monotonic())
        assert run.heard("a.0", "no limit on restarts")
        (tmp_path / "a.well").touch()
        await_(lambda: run.state("a.0") is State.RUNNING)
        # It died twice without a service that made it good, so its model runs in worker processes.
        assert (tmp_path / "a.cautious").exists()
        assert not (tmp_path / "b.cautious").exists()
        assert run.end() == 0


def test_a_pipeline_that_was_never_ready_ends_and_says_why(tmp_path):
    with running(tmp_path, [plan(tmp_path, "a", "broken"), plan(tmp_path, "b")]) as run:
        run.thread.join(600)
        assert run.code == 1
        assert run.heard("a.0", "FAILED", "the model is not there")
        assert run.state("b.0") is State.STOPPED


def test_bad_input_is_not_tried_twice(tmp_path):
    with running(tmp_path, [plan(tmp_path, "a", "misused")]) as run:
        run.thread.join(600)
        assert run.code == 1
        assert run.child("a.0").life.restarts == 0
        assert run.heard("this is no pipeline")


class Owned:
    """Says that nobody has taken over when the test lets it."""

    def __init__(self):
        self.asked = []

    def confirm(self, then):
        self.asked.append(then)


def test_a_fenced_gate_waits_until_it_is_known_whose_its_place_is(tmp_path):
    quick = replace(QUICK, first_tries=1, max_deaths=1, fenced_delay=0.05)
    with running(
        tmp_path, [plan(tmp_path, "gate", "fenced", role="gate")], settings=SupervisorSettings(restart=quick)
    ) as run:
        run.supervisor.owned = owned = Owned()
        for times in (1, 2, 3):  # none of which counts
            await_(lambda times=times: len(owned.asked) == times)
            assert run.state("gate.0") is State.BACKING_OFF
            assert run.child("gate.0").life.restarts == times - 1
            owned.asked[-1]()
        (tmp_path / "gate.well").touch()
        await_(lambda: len(owned.asked) == 4 or run.state("gate.0") is State.RUNNING)
        if len(owned.asked) == 4:  # it was started before the file was there
            owned.asked[-1]()
        await_(lambda: run.state("gate.0") is State.RUNNING)
        assert run.heard("gate.0 was fenced", "is confirmed to be served from here", "it was fenced")
        assert run.end() == 0


def test_a_fenced_child_of_a_supervisor_that_owns_nothing_is_started_again(tmp_path):
    with running(
        tmp_path,
        [plan(tmp_path, "gate", "fenced", role="gate")],
        settings=SupervisorSettings(restart=replace(QUICK, fenced_delay=0.05)),
    ) as run:
        await_(lambda: run.child("gate.0").life.restarts >= 2)


def test_what_is_stopped_while_it_starts_says_just_that(tmp_path):
    with running(tmp_path, [plan(tmp_path, "a", "slow-start"), plan(tmp_path, "b")]) as run:
        await_(lambda: run.state("a.0") is State.STARTING)
        assert run.end() == 0
        assert run.heard("stopped while starting")
        assert not run.heard("did not end cleanly")


def test_a_child_that_does_not_listen_is_ended_by_force(tmp_path):
    quick = SupervisorSettings(restart=RestartPolicy(grace=0.3))
    with running(tmp_path, [plan(tmp_path, "a", "deaf")], settings=quick) as run:
        assert run.ready.wait(600)
        assert run.end() == 0
        assert run.heard("a.0", "did not end cleanly", "SIGKILL")


class Still:
    """Groups where nobody commits while records wait."""

    def look(self, stages):
        return {s: GroupSight({0: PartitionSight(committed=7, end=9, owner=0)}, frozenset({0})) for s in stages}

    def close(self):
        pass


def tells(**told):
    """What stands in for reading metrics: the first of two processes tells this, each thing of its own at each look."""
    nothing = {field.name: 0 for field in fields(Figures)} | {
        "role": "stage",
        "state_role": "",
        "waits": (),
        "outcomes": {},
    }

    class Reader:
        def __init__(self, _run_dir, _pipeline):
            self.looks = 0

        def read(self, _now):
            self.looks += 1
            said = {key: value(self.looks) for key, value in told.items()}
            return {"a.0": Figures(**nothing | said), "b.0": Figures(**nothing)}

    return Reader


@pytest.mark.parametrize(
    "told", [{"waits": lambda _look: (0,)}, {"moved": lambda look: look}], ids=["waits", "moves-bytes"]
)
def test_one_that_waits_for_anothers_versions_or_moves_a_large_state_is_left_alone(tmp_path, monkeypatch, told):
    monkeypatch.setattr("spillway.agents.supervise.supervisor.MetricsReader", tells(**told))
    settings = SupervisorSettings(restart=QUICK, stall=1.5)
    with running(tmp_path, [plan(tmp_path, "a"), plan(tmp_path, "b")], settings=settings, groups=Still()) as run:
        assert run.ready.wait(600)
        spared = run.child("a.0").pid
        await_(lambda: run.child("b.0").life.restarts >= 2)
        assert run.child("a.0").pid == spared
        assert not run.heard("a.0", "no progress")


def test_one_that_is_not_ready_for_long_is_named_with_what_its_model_is_at(tmp_path, monkeypatch):
    monkeypatch.setattr("spillway.agents.supervise.supervisor._SLOW_START_SECONDS", 0.0)
    said = tmp_path / "fake" / "logs" / "a.0.log"
    with running(tmp_path, [plan(tmp_path, "a", "slow-start")]) as run:
        await_(lambda: run.heard("a.0 is not ready after"))
        await_(lambda: said.exists() and said.stat().st_size > 0)
        run.supervisor._called_slow.clear()  # as at its next start, when it has had the time to say it
        await_(lambda: run.heard("a.0 is not ready after", "it is being imported and constructed"))


def test_one_that_waits_for_a_persons_workers_is_given_the_time_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("spillway.agents.supervise.supervisor._WAITING_SECONDS", 1.0)
    waits = replace(plan(tmp_path, "a", "slow-start"), waits=True)
    settings = SupervisorSettings(RestartPolicy(start_timeout=0.1))
    with running(tmp_path, [waits], settings=settings) as run:
        await_(lambda: run.heard("a.0 waits for a worker: start one with 'spillway worker'"))
        assert (run.state("a.0"), run.child("a.0").life.restarts) == (State.STARTING, 0)
