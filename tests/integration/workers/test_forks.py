"""Models that start processes and threads, in worker processes and in threads of a stage: nothing of ours is theirs."""

import contextlib
import os
import signal
from pathlib import Path

import psutil
import pytest

from spillway.agents.workers import forks, processes
from spillway.agents.workers.links import Links
from spillway.agents.workers.single import SingleWorker
from spillway.topology.sections import WorkersSpec
from spillway.topology.spec import StageSpec
from tests.integration.stage.conftest import Stage
from tests.integration.workers.conftest import SECONDS, query
from tests.integration.workers.forking import ACTS
from tests.waiting import gone, until

MODEL = "tests.integration.workers.forking:Forks"


@pytest.fixture
def links(heard):
    made = Links(heard, timeout=SECONDS)
    yield made
    made.close()


def spawned(links, heard, **workers):
    links.adopt(
        0, *processes.started(processes.command_of(StageSpec(name="s", model=MODEL, workers=WorkersSpec(**workers)), 1))
    )
    return psutil.Process(heard.next("ready")[1]["pid"])


def asked(links, heard, act, x=7):
    links.send(0, act, [query(act=act, x=x)], singly=False)
    (result,) = heard.next("answered")[3]
    return result["outputs"]["y"] if "outputs" in result else result


def group_of(pid):
    """The processes of a group."""
    return {each for each in psutil.pids() if psutil.pid_exists(each) and os.getpgid(each) == pid}


def held(pid):
    """What a process holds that is no file and no pipe: sockets, selectors, descriptors of events."""
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            found.append(str(each.readlink()))
    return {each for each in found if each.startswith(("socket:", "anon_inode:"))}


def test_a_worker_goes_on_whatever_its_model_starts(links, heard):
    worker = spawned(links, heard)
    for act in (*ACTS, "uses_database"):
        assert asked(links, heard, act) == 7, act
        assert asked(links, heard, "threads") == 7, act
        assert worker.is_running(), act
    links.close()
    assert heard.events.empty()  # it neither drained nor was lost


def test_a_child_that_is_left_holds_nothing_of_its_worker_and_ends_with_it(links, heard):
    worker = spawned(links, heard)
    child = asked(links, heard, "leaves")
    assert asked(links, heard, "shell") == 7
    until(lambda: not held(child), SECONDS)
    started = group_of(worker.pid)
    assert len(started) >= 4
    links.close()
    for each in started:
        until(lambda each=each: gone(each), SECONDS)


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("act", ["leaves", "hands_down"])
def test_a_worker_that_dies_beside_a_child_is_lost_at_once_and_the_child_with_it(
    links, heard, monkeypatch, act, watched
):
    if not watched:
        monkeypatch.setattr(forks.os, "pidfd_open", no_descriptor)
    worker = spawned(links, heard)
    child = asked(links, heard, act)
    until(lambda: bool(held(child)) == (act == "hands_down"), SECONDS)
    links.send(0, "job", [query(act="threads", x=1), query(act="dies", x=1)], singly=True)
    assert heard.next("answered")[1:3] == ("job", 0)
    _, job, answered, why, _ = heard.next("lost")
    assert (job, answered) == ("job", 1)
    assert "SIGKILL" in why
    until(lambda: gone(child), SECONDS)
    assert not worker.is_running()


def no_descriptor(_pid):
    raise OSError("a sandbox without it")


def test_a_worker_whose_front_is_gone_takes_its_children_along(tmp_path):
    front = os.fork()
    if not front:
        try:
            worker = SingleWorker(StageSpec(name="s", model=MODEL), 1)
            made = worker.predict([Query(act="leaves", x=0)])[0]["y"]
            (tmp_path / "pids").write_text(f"{worker.pid} {made}")
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.waitpid(front, 0)
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        until(lambda pid=pid: gone(pid), SECONDS)


class Query(dict):
    parameters: dict = {}  # noqa: RUF012
    request_id = key = ""

    def __init__(self, **inputs):
        super().__init__(inputs)


@pytest.fixture
def stage(broker, unique_name, tmp_path):
    made = Stage(
        broker,
        unique_name,
        tmp_path,
        f"partitions: 2\nstages:\n  - {{name: s, model: '{MODEL}', workers: {{count: 2}}, batching: {{max: 1}}}}\n",
    )
    yield made
    made.close()


def test_a_stage_goes_on_whatever_its_model_starts_in_a_thread(stage):
    process = stage.start("s")
    out = stage.reader("outcomes")
    acts = [*(each for each in ACTS if each != "shell"), "uses_database"]
    # A child that is forked to stay may hold the pipe by which another thread's Popen waits for its program to begin,
    # and then neither returns: CPython's own limit. So those that stay are forked when all others have ended.
    for turn in (3 * acts, 3 * ["leaves"]):
        for number, act in enumerate(turn):
            stage.send(f"{act}-{number}", {"act": act, "x": number})
        stage.flush()
        out.wait(len(out.messages) + len(turn))
    answers = {told.request_id: outcome.outputs.get("y", outcome.text) for told, outcome in out.outcomes()}
    left = [answers.pop(name) for name in list(answers) if name.startswith("leaves")]
    assert answers == {name: int(name.rpartition("-")[2]) for name in answers}
    assert process.poll() is None
    mine = held(process.pid)
    for child in left:
        shared = {each for each in held(child) & mine if not kafka(process.pid, each)}
        assert not shared
    children = {each.pid for each in psutil.Process(process.pid).children(recursive=True)}
    assert stage.stop(process) == 0
    for each in {*children, *left}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def kafka(pid, name):
    """Whether a socket is one of librdkafka's, which lets nobody have it."""
    inode = name.removeprefix("socket:[").rstrip("]")
    table = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[9] == inode and line.split()[3] != "0A" for line in table)  # 0A: it listens
