"""Standbys and members of stateful stages under the supervisor, with processes that stand in for them; no broker."""

import os
import signal
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

from spillway.agents.supervise.child import ChildPlan
from spillway.agents.supervise.lifecycle import RestartPolicy, State
from spillway.agents.supervise.supervisor import SupervisorSettings
from spillway.agents.supervise.watchdog import GroupSight, PartitionSight

from .test_supervisor import FAKE, QUICK, await_, plan, running


def standby(run_dir, stage, number=0, mode="standby"):
    command = [sys.executable, str(FAKE), str(run_dir), stage, str(number), "standby", mode]
    return ChildPlan(stage, number, "standby", command, label=f"{stage}.standby{number}")


def settings(**changes):
    return SupervisorSettings(restart=replace(QUICK, **{"lent_delay": 0.05, **changes}))


def test_a_standby_takes_a_dead_replicas_place_and_another_one_waits(tmp_path):
    plans = [plan(tmp_path, "a"), plan(tmp_path, "a", replica=1), standby(tmp_path, "a"), plan(tmp_path, "b")]
    with running(tmp_path, plans, settings=settings()) as run:
        assert run.ready.wait(600)
        waiting, other = run.child("a.standby0").pid, run.child("a.0").pid
        os.kill(run.child("a.1").pid, signal.SIGKILL)
        await_(lambda: run.child("a.1").pid == waiting and run.state("a.1") is State.RUNNING)
        await_(lambda: run.child("a.standby0").pid not in {None, waiting} and run.state("a.standby0") is State.RUNNING)
        assert run.child("a.0").pid == other
        assert run.child("a.1").life.restarts == 1
        assert run.child("a.standby0").life.restarts == 0
        assert run.heard("a.1 was ended by SIGKILL", "a.standby0 takes its place")
        assert not run.heard("a.standby0", "restarting")
        assert run.end() == 0


def test_without_a_ready_standby_the_replica_itself_comes_back(tmp_path):
    plans = [plan(tmp_path, "a"), standby(tmp_path, "a")]
    with running(tmp_path, plans, settings=settings(lent_delay=60.0)) as run:
        assert run.ready.wait(600)
        taken = run.child("a.standby0").pid
        os.kill(run.child("a.0").pid, signal.SIGKILL)
        await_(lambda: run.child("a.0").pid == taken and run.state("a.0") is State.RUNNING)
        os.kill(taken, signal.SIGKILL)
        await_(lambda: run.child("a.0").pid not in {None, taken} and run.state("a.0") is State.RUNNING)
        assert run.child("a.0").life.restarts == 2
        assert run.state("a.standby0") is State.BACKING_OFF
        assert run.end() == 0


def test_a_standby_that_dies_is_started_again_and_takes_nobodys_place(tmp_path):
    with running(tmp_path, [plan(tmp_path, "a"), standby(tmp_path, "a")], settings=settings()) as run:
        assert run.ready.wait(600)
        dead, other = run.child("a.standby0").pid, run.child("a.0").pid
        os.kill(dead, signal.SIGKILL)
        await_(lambda: run.child("a.standby0").pid not in {None, dead} and run.state("a.standby0") is State.RUNNING)
        assert run.child("a.standby0").life.restarts == 1
        assert run.child("a.0").pid == other
        assert run.end() == 0


def test_a_standby_whose_model_does_not_load_any_more_is_given_up_and_the_rest_serves_on(tmp_path):
    bounded = replace(settings(), restart=replace(settings().restart, give_up=3))
    with running(tmp_path, [plan(tmp_path, "a"), standby(tmp_path, "a", mode="standby")], settings=bounded) as run:
        assert run.ready.wait(600)
        (tmp_path / "a.ill").touch()
        os.kill(run.child("a.standby0").pid, signal.SIGKILL)
        await_(lambda: run.state("a.standby0") is State.FAILED)
        assert run.state("a.0") is State.RUNNING
        await_(lambda: run.heard("a.standby0", "FAILED", "the model is not there"))  # said after the state has changed
        assert run.end() == 1


def test_a_standby_takes_places_of_its_own_stage_only(tmp_path):
    with running(tmp_path, [plan(tmp_path, "b"), standby(tmp_path, "a")], settings=settings()) as run:
        assert run.ready.wait(600)
        waiting = run.child("a.standby0").pid
        os.kill(run.child("b.0").pid, signal.SIGKILL)
        await_(lambda: run.child("b.0").life.restarts == 1 and run.state("b.0") is State.RUNNING)
        assert run.child("a.standby0").pid == waiting
        assert run.end() == 0


def test_a_death_is_seen_at_once_not_at_the_next_look(tmp_path, monkeypatch):
    quick = SupervisorSettings(RestartPolicy(first_delay=0.01, lent_delay=60.0))
    with running(tmp_path, [plan(tmp_path, "a"), standby(tmp_path, "a")], settings=quick) as run:
        assert run.ready.wait(600)
        waiting = run.child("a.standby0").pid
        monkeypatch.setattr("spillway.agents.supervise.supervisor._TICK_SECONDS", 8.0)
        time.sleep(0.2)  # so that the supervisor is in such a tick
        os.kill(run.child("a.0").pid, signal.SIGKILL)
        await_(lambda: run.child("a.0").pid == waiting, seconds=4.0)
        monkeypatch.undo()
        os.kill(waiting, signal.SIGKILL)  # which ends the long tick


class Told:
    def __init__(self):
        self.dead = []

    def report(self, stage, shard, member):
        self.dead.append((stage, shard, member))


def test_the_death_of_a_member_is_reported_under_the_name_of_its_process(tmp_path):
    told = Told()
    command = [sys.executable, str(FAKE), str(tmp_path), "s", "3", "stage", "good"]
    member = ChildPlan("s", 3, "member", command, label="s.1.1", shard=1, member="fake.s.1.1")
    with running(tmp_path, [member], settings=settings(), obituaries=told) as run:
        assert run.ready.wait(600)
        os.kill(run.child("s.1.1").pid, signal.SIGKILL)
        await_(lambda: told.dead)
        await_(lambda: run.child("s.1.1").life.restarts == 1 and run.state("s.1.1") is State.RUNNING)
        os.kill(run.child("s.1.1").pid, signal.SIGKILL)
        await_(lambda: len(told.dead) == 2)
        (stage, shard, first), (_, _, second) = told.dead
        assert (stage, shard) == ("s", 1)
        assert first.startswith("fake.s.1.1@")
        assert second.startswith("fake.s.1.1@")
        assert first != second
        run.supervisor.hurry()


def figures_of(role):
    return SimpleNamespace(role="stage", state_role=role, moved=0, waits=(), stopped={}, outcomes={}, queue=0)


class StandingStill:
    """The groups of a shard where nothing moves, though records wait."""

    def look(self, groups):
        return {g: GroupSight({0: PartitionSight(7, 9, int(g[-1]))}, frozenset({int(g[-1])})) for g in groups}

    def close(self):
        pass


def test_a_backup_is_not_restarted_for_its_primarys_standing_still(tmp_path, monkeypatch):
    def told(_self, _now):
        return {f"s.0.{n}": figures_of(role) for n, role in enumerate(("primary", "backup"))}

    monkeypatch.setattr("spillway.agents.supervise.groups.MetricsReader.read", told)
    plans = [replace(plan(tmp_path, "s.0", replica=n), role="member", label=f"s.0.{n}") for n in range(2)]
    quick = SupervisorSettings(QUICK, stall=1.2)
    with running(tmp_path, plans, settings=quick, groups=StandingStill()) as run:
        assert run.ready.wait(600)
        primary, backup = run.child("s.0.0").pid, run.child("s.0.1").pid
        await_(lambda: run.child("s.0.0").pid not in {None, primary})
        await_(lambda: run.heard("s.0.0", "no progress"))
        assert run.child("s.0.1").pid == backup
        assert run.end() == 0


def test_backups_stop_before_primaries_and_that_is_told(tmp_path, monkeypatch):
    roles = {"s.0.0": figures_of("primary"), "s.1.0": figures_of("backup")}
    monkeypatch.setattr("spillway.agents.supervise.groups.MetricsReader.read", lambda _self, _now: roles)
    plans = [
        replace(plan(tmp_path, stage), role="member", label=f"{stage}.0", member=f"fake.{stage}.0")
        for stage in ("s.0", "s.1")
    ]
    told = Told()
    with running(tmp_path, [*plans, plan(tmp_path, "a")], settings=settings(), obituaries=told) as run:
        assert run.ready.wait(600)
        await_(lambda: run.supervisor._observer.figures)
        assert run.end() == 0
    assert (tmp_path / "ends").read_text().split()[-1] == "s.0"
    assert [member.partition("@")[0] for _, _, member in told.dead] == ["fake.s.1.0", "fake.s.0.0"]
