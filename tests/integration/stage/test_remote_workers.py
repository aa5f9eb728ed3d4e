"""A stage whose workers are on other hosts: their own processes on loopback, with certificates made here."""

import os
import signal
from collections import Counter

import pytest
import trustme

from spillway.agents.broker.ports import free_port
from spillway.lineage.message import PREDICTION
from tests.certificates import folder_of

MODELS = """
import os, time


class Slow:
    version = "far"

    def __init__(self, gain=2):
        self.gain = gain

    def predict(self, batch):
        time.sleep(.02)
        return [{"y": query["x"] * self.gain, "pid": os.getpid()} for query in batch]
"""


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def far(stage, authority, tmp_path):
    """A stage with remote workers, and what starts one of these."""
    folder_of(authority, tmp_path / "certs")
    port = free_port()
    made = stage(
        "partitions: 4\npolicy: naive\nstages:\n"
        f"  - {{name: far, model: 'far_models:Slow', workers: {{where: remote, count: 2, listen: '127.0.0.1:{port}', "
        f"tls: {tmp_path / 'certs'}}}, batching: {{size: 4}}}}\n"
    )
    (made.folder / "far_models.py").write_text(MODELS)

    def worker(name="w", file=made.file, tls=tmp_path / "certs"):
        command = ["-P", "-m", "spillway.agents.cli.main", "worker", str(file), "far"]
        return made.run(name, *command, "--connect", f"127.0.0.1:{port}", "--tls", str(tls))

    made.worker = worker
    made.said = lambda name: (made.folder / f"{name}.log").read_text()
    return made


def answers(far, count):
    """Every query's pid, once each of them is answered exactly once, and rightly."""
    found = far.reader("outcomes").answers(count)
    for x in range(count):
        outcome = found[f"q-{x}"]
        assert (outcome.kind, outcome.outputs.get("y")) == (PREDICTION, 2 * x), outcome
    return [outcome.outputs["pid"] for outcome in found.values()]


def test_two_remote_workers_come_back_to_a_front_that_is_started_again_and_one_that_dies_costs_no_query(far, until):
    front = far.start("far")
    workers = [far.worker("a"), far.worker("b")]
    until(lambda: "2 of 2 workers are connected" in far.log("far"))
    far.send_many(100)
    assert set(answers(far, 100)) == {worker.pid for worker in workers}
    sent = far.send_many(200, prefix="r")
    out = far.reader("outcomes")
    out.wait(110)
    far.stop(front, signal.SIGKILL)
    front = far.start("far")
    until(lambda: far.log("far").count("2 of 2 workers are connected") == 2)

    def found(sent):  # what the first front had answered and not committed comes twice; the gate takes one
        out.poll()
        told = {told.request_id: outcome.outputs["y"] for told, outcome in out.outcomes()}
        return {request_id: y for request_id, y in told.items() if request_id in sent}

    until(lambda: len(found(sent)) == 200)
    assert found(sent) == {request_id: 2 * x for request_id, x in sent.items()}
    assert all(worker.poll() is None for worker in workers)
    more = far.send_many(300, prefix="s")
    out.wait(len(out.messages) + 10)
    os.kill(workers[0].pid, signal.SIGKILL)
    until(lambda: len(found(more)) == 300)
    out.settle()
    assert Counter(told.request_id for told, _ in out.outcomes() if told.request_id in more) == dict.fromkeys(more, 1)
    assert found(more) == {request_id: 2 * x for request_id, x in more.items()}
    until(lambda: "worker 0 is lost" in far.log("far") or "worker 1 is lost" in far.log("far"))
    workers[0] = far.worker("a")
    until(lambda: far.log("far").count("2 of 2 workers are connected") == 3)
    assert far.stop(workers[0]) == 0  # it asks for a drain
    assert "the front has said bye" not in far.log("far")
    until(lambda: far.log("far").rfind("1 of 2 workers are connected") > far.log("far").rfind("2 of 2 workers are"))
    assert far.stop(front) == 0
    assert far.stop(workers[1]) == 0  # it looks for a front, and ends at once


@pytest.mark.nightly
def test_no_query_is_lost_or_doubled_when_a_worker_stands_still(far, until):
    far.start("far")
    workers = [far.worker("a"), far.worker("b")]
    until(lambda: "2 of 2 workers are connected" in far.log("far"))
    far.send_many(100)
    out = far.reader("outcomes")
    out.wait(10)
    os.kill(workers[0].pid, signal.SIGSTOP)
    for x in range(100, 400):
        far.send(f"q-{x}", {"x": x})
    far.flush()
    answers(far, 400)
    until(lambda: "worker 0 is lost" in far.log("far") or "worker 1 is lost" in far.log("far"))
    assert "three pings were missed" in far.log("far")
    os.kill(workers[0].pid, signal.SIGCONT)
    until(lambda: far.log("far").count("2 of 2 workers are connected") == 2)
    assert far.stop(workers[0]) == 0


def test_workers_that_are_refused_say_why_and_harm_nobody(far, until, authority, tmp_path):
    far.start("far")
    good = far.worker("good")
    until(lambda: "1 of 2 workers are connected" in far.log("far"))
    other = tmp_path / "other"
    other.mkdir()
    (other / "pipeline.yaml").write_text(far.file.read_text())
    (other / "far_models.py").write_text(MODELS + "\n# newer\n")
    far.folder, here = other, far.folder
    newer = far.worker("newer", other / "pipeline.yaml")
    far.folder = here
    foreign = folder_of(trustme.CA(), tmp_path / "foreign")
    refusing = far.worker("refusing", tls=foreign)
    authority.cert_pem.write_to_path(str(foreign / "ca.pem"))
    refused = far.worker("refused", tls=foreign)
    assert [worker.wait(120) for worker in (newer, refusing, refused)] == [2, 2, 2]
    assert "source of its module must be the same" in (other / "newer.log").read_text()
    assert "not have certificates of the same authority" in far.said("refusing")
    assert "not have certificates of the same authority" in far.said("refused")
    far.send_many(40)
    assert set(answers(far, 40)) == {good.pid}
    assert "is lost" not in far.log("far")
    assert good.poll() is None


def test_a_worker_of_a_stage_without_remote_workers_is_told_so(far):
    far.file.write_text(far.file.read_text().partition("workers:")[0] + "}\n")
    assert far.worker("w").wait(120) == 2
    assert "has no remote workers" in far.said("w")
