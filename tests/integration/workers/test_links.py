"""Worker processes and the links to them: real processes, no broker."""

import os
import signal
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

from spillway.agents.workers import frames
from spillway.agents.workers.links import Links
from spillway.agents.workers.processes import command_of, started
from spillway.lineage.errors import ModelError
from spillway.topology.sections import WorkersSpec
from spillway.topology.spec import StageSpec

from .conftest import query

MODELS = "tests.integration.workers.models"


@pytest.fixture
def links(heard):
    made = Links(heard, timeout=2.0)
    yield made
    made.close()


def command(name="Obedient", **workers):
    return command_of(StageSpec(name="s", model=f"{MODELS}:{name}", workers=WorkersSpec(**workers)), 1)


def spawned(links, heard, worker=0):
    links.adopt(worker, *started(command()))
    return heard.next("ready")[1]


def test_a_worker_says_hello_and_answers_with_what_its_model_made(links, heard):
    hello = spawned(links, heard)
    assert (hello["version"], hello["pid"]) == ("7", links._links[0].process.pid)
    tensor = np.arange(6, dtype=np.float32).reshape(2, 3)
    links.send(0, "job", [query(n=1, x=tensor), query(n=2)], singly=False)
    _, job, first, results = heard.next("answered")
    assert (job, first) == ("job", 0)
    assert results[0]["outputs"]["x"].tolist() == tensor.tolist()
    assert [each["outputs"]["n"] for each in results] == [1, 2]
    assert results[1]["outputs"]["key"] == "k"


def test_flags_of_an_answer_come_with_it_and_what_cannot_travel_fails_alone(links, heard):
    spawned(links, heard)
    said = {"confidence": 0.5}
    links.send(0, "job", [query(n=1, flags=said), query(n=2, flags=None)], singly=False)
    assert heard.next("answered")[3] == [{"outputs": {"n": 1}, "flags": said}, {"outputs": {"n": 2}}]
    links.send(0, "job", [query(n=1, flags=said), query(n=2, flags="bad"), query(n=3, flags=None)], singly=False)
    first, bad, last = heard.next("answered")[3]
    assert (first, last) == ({"outputs": {"n": 1}, "flags": said}, {"outputs": {"n": 3}})
    assert bad["reason"] == "bad-result"
    assert "cannot travel" in bad["error"]


def answers(heard, count):
    """All results of a job of so many queries, as they come in order."""
    found = []
    while len(found) < count:
        _, _, first, results = heard.next("answered")
        assert first == len(found)
        found += results
    return found


def test_a_batch_of_large_texts_is_answered(links, heard):
    spawned(links, heard)
    links.send(0, "job", [query(n=n, x="a" * 300_000) for n in range(64)], singly=False)
    assert [each["outputs"]["n"] for each in answers(heard, 64)] == list(range(64))


@pytest.mark.parametrize("singly", [False, True])
def test_what_one_frame_cannot_hold_goes_in_several_and_what_none_can_hold_fails_alone(
    links, heard, monkeypatch, singly
):
    spawned(links, heard)
    monkeypatch.setattr(frames, "HEADER_BYTES", 4_000)
    links.send(0, "job", [query(n=n, x="a" * (5_000 if n in {3, 8, 9} else 900)) for n in range(10)], singly=singly)
    told = answers(heard, 10)
    assert [each["outputs"]["n"] for each in told if "outputs" in each] == [0, 1, 2, 4, 5, 6, 7]
    assert [n for n, each in enumerate(told) if each.get("reason") == "too-large"] == [3, 8, 9]
    links.send(0, "more", [query(x="a" * 5_000)], singly=singly)
    assert answers(heard, 1)[0]["reason"] == "too-large"
    links.send(0, "more", [query(n=1)], singly=singly)
    assert answers(heard, 1)[0]["outputs"]["n"] == 1


def test_a_worker_survives_its_answers(links, heard):
    pid = spawned(links, heard)["pid"]
    for value in ("{1: 2}", "object()", "2**64", "'a' * (1 << 20)", "[0] * 300_000", "panic()"):
        links.send(0, "job", [query(n=1), query(of=value), query(n=3)], singly=False)
        first, _, last = answers(heard, 3)
        assert (first["outputs"]["pid"], last["outputs"]["pid"]) == (pid, pid), value


def test_a_model_that_cannot_be_loaded_is_told_with_its_cause(links, heard):
    links.adopt(0, *started(command("Broken")))
    _, job, _, why, failed = heard.next("lost")
    assert job is None
    assert failed
    assert "no weights here" in why


def test_an_idle_worker_that_is_killed_is_heard_of_at_once(links, heard):
    os.kill(spawned(links, heard)["pid"], signal.SIGKILL)
    _, job, _, why, failed = heard.next("lost")
    assert (job, failed) == (None, False)
    assert "SIGKILL" in why


def test_a_batch_goes_down_with_its_worker(links, heard):
    spawned(links, heard)
    links.send(0, "job", [query(n=1), query(do="die")], singly=False)
    assert heard.next("lost")[1:3] == ("job", 0)


def test_run_singly_the_queries_before_the_killer_are_answered(links, heard):
    spawned(links, heard)
    links.send(0, "job", [query(n=1), query(n=2), query(do="die"), query(n=3)], singly=True)
    assert [heard.next("answered")[2] for _ in range(2)] == [0, 1]
    assert heard.next("lost")[1:3] == ("job", 2)


def test_a_worker_that_hangs_is_ended_after_the_time_out(links, heard):
    pid = spawned(links, heard)["pid"]
    links.send(0, "job", [query(do="hang")], singly=False)
    _, job, _, why, _ = heard.next("lost")
    assert job == "job"
    assert "more than 2 s, its timeout" in why
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_stopped_worker_is_ended_after_the_time_out(links, heard):
    os.kill(spawned(links, heard)["pid"], signal.SIGSTOP)
    links.send(0, "job", [query(n=1)], singly=False)
    assert "timeout" in heard.next("lost")[3]


def test_where_a_batch_raises_its_queries_are_run_singly(links, heard):
    spawned(links, heard)
    links.send(0, "job", [query(n=1), query(do="raise"), query(n=3)], singly=False)
    results = heard.next("answered")[3]
    assert [each.get("outputs", {}).get("n") for each in results] == [1, None, 3]
    assert "told to" in results[1]["error"]
    assert "models.py" in results[1]["error"]


def test_a_model_that_returns_a_wrong_number_is_told_so_for_each_query(links, heard):
    spawned(links, heard)
    links.send(0, "job", [query(do="lie"), query(n=2)], singly=False)
    results = heard.next("answered")[3]
    assert "2 results for 1 queries" in results[0]["error"]
    assert results[1]["outputs"]["n"] == 2


def test_a_worker_has_the_threads_that_its_stage_says(links, heard):
    links.adopt(0, *started(command(threads=3)))
    heard.next("ready")
    links.send(0, "job", [query(env="OPENBLAS_NUM_THREADS")], singly=False)
    assert heard.next("answered")[3][0]["outputs"]["env"] == "3"


def test_an_interpreter_that_is_not_there_is_told():
    with pytest.raises(ModelError, match="stage 's': there is no interpreter 'none/python'"):
        command(python="none/python")


def test_an_interpreter_of_its_own_needs_numpy_and_msgpack_alone(links, heard, tmp_path, monkeypatch):
    packages = tmp_path / "packages"
    packages.mkdir()
    site = Path(np.__file__).parents[1]
    for each in [*site.glob("numpy*"), *site.glob("msgpack*")]:
        (packages / each.name).symlink_to(each)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    (tmp_path / "alone.py").write_text(
        "import sys\n\n\nclass Alone:\n    def __init__(self, times):\n        self.times = times\n\n"
        "    def predict(self, batch):\n"
        "        roots = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)\n"
        "        return [{'n': self.times * each['n'], 'roots': sorted(roots)} for each in batch]\n"
    )
    monkeypatch.chdir(tmp_path)
    spec = StageSpec(name="s", model="alone:Alone", arguments={"times": 3}, workers=WorkersSpec(python=str(python)))
    links.adopt(0, *started(command_of(spec, 1)))
    heard.next("ready")
    links.send(0, "job", [query(n=2)], singly=False)
    outputs = heard.next("answered")[3][0]["outputs"]
    assert outputs["n"] == 6
    assert {"alone", "frames", "msgpack", "numpy"} <= set(outputs["roots"])
    assert not {"agents", "lineage", "pydantic"} & set(outputs["roots"])


def test_sigterm_asks_for_a_drain_and_bye_ends_the_worker(links, heard):
    pid = spawned(links, heard)["pid"]
    os.kill(pid, signal.SIGTERM)
    heard.next("draining")
    links.send(0, "last", [query(n=1)], singly=False)
    assert heard.next("answered")[1] == "last"
    links.bye(0)
    links.adopt(1, *started(command()))
    heard.next("ready")  # and nothing was heard of the first one's end


def answer(links, **more):
    return {
        "kind": frames.ANSWER,
        "id": [links._front, 1],
        "first": 0,
        "seconds": 0.1,
        "results": [{"error": "x"}],
        **more,
    }


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ({"results": [{"error": "x"}] * 3}, "3 results for 2 queries"),
        ({"results": "many"}, "has no results"),
        ({"first": 1}, "has no results"),
        ({"kind": "gossip"}, "'gossip'"),
    ],
)
def test_a_lying_worker_is_lost_and_its_batch_with_it(links, heard, lie, words):
    theirs = connected(links, heard)
    links.send(0, "job", [query(n=1), query(n=2)], singly=False)
    theirs.recv(1 << 16)
    theirs.sendall(b"".join(frames.encode(answer(links, **lie))))
    _, job, _, why, _ = heard.next("lost")
    assert job == "job"
    assert words in why


@pytest.mark.parametrize("other", [[b"another!", 1], ["front", 1], None, 7])
def test_an_answer_to_another_dispatch_is_void(links, heard, other):
    theirs = connected(links, heard)
    links.send(0, "job", [query(n=1)], singly=False)
    theirs.recv(1 << 16)
    theirs.sendall(b"".join(frames.encode(answer(links, id=other))))
    theirs.sendall(b"".join(frames.encode(answer(links, results=[{"outputs": {"n": 1}}]))))
    assert heard.next("answered")[3] == [{"outputs": {"n": 1}}]


def test_an_error_of_our_own_on_the_thread_is_told(links, heard):
    links.call(lambda: 1 / 0)
    assert isinstance(heard.next("broken")[0], ZeroDivisionError)


def test_garbage_is_no_frame(links, heard):
    theirs = connected(links, heard)
    theirs.sendall(b"\xff" * 64)
    assert "protocol" in heard.next("lost")[3]


def connected(links, heard):
    ours, theirs = socket.socketpair()
    links.adopt(0, ours)
    theirs.sendall(b"".join(frames.encode({"kind": frames.HELLO, "protocol": frames.PROTOCOL})))
    heard.next("ready")
    return theirs
