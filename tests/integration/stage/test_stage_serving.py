import signal

import psutil
import pytest

from spillway.lineage import trace


def test_every_query_is_answered_once_with_its_own_result(stage, until):
    one = stage()
    process = one.start("square")
    context = trace.new_trace("q")
    one.send("q", {"x": 3}, told={"trace": context})
    one.flush()
    out = one.reader("outcomes")
    (message,) = out.wait(1)
    ((told, outcome),) = out.outcomes()
    assert message.key() == b"q"
    assert dict(message.headers())["x-tenant"] == b"t1"
    assert told.trace == context
    assert told.hop.stage == "square"
    assert (told.hop.partition, told.hop.sequence) == (message.partition(), 0)
    (timing,) = outcome.timings
    assert (timing.stage, timing.model, timing.version, timing.batch) == ("square", "stage_models:Square", "sq1", 1)
    assert timing.queued >= 0
    assert timing.executed > 0

    sent = {"q": 3} | one.send_many(500)
    answers = {request_id: outcome.outputs for request_id, outcome in out.answers(len(sent)).items()}
    assert answers == {request_id: {"y": x**2, "id": request_id} for request_id, x in sent.items()}
    until(lambda: one.committed("square") == one.ends())
    assert psutil.Process(process.pid).memory_info().rss / 2**20 < 120  # as nothing of it needs torch

    # Killed, and started again, it repeats nothing that a client sends again as it did not hear in time.
    one.stop(process, signal.SIGKILL)
    one.send_many(50)
    process = one.start("square")
    one.send("new", {"x": 7})
    one.flush()
    out.wait(len(sent) + 1)
    out.settle()
    assert len(out.messages) == len(sent) + 1
    assert one.metrics("square")["spillway_duplicates_total"] == 50
    assert one.stop(process) == 0
    assert not (one.folder / "run" / one.name / "square.0.json").exists()


def test_sigterm_finishes_what_was_taken_commits_and_leaves(stage, until):
    one = stage(
        """
partitions: 4
stages:
  - {name: square, emulated: {alpha: 20ms, beta: 1ms}, batching: {size: 4}, queue: 8}
"""
    )
    process = one.start("square")
    sent = one.send_many(300)
    out = one.reader("outcomes")
    out.wait(4)
    assert one.stop(process) == 0
    out.settle()
    committed = one.committed("square")
    assert sum(committed.values()) == len(out.messages) < len(sent)
    assert "left the group" in one.log("square")
    plan = one.reader("plan")
    plan.wait(1)
    assert [(word.key(), word.value()) for word in plan.settle()][-1] == (b"square.0", None)  # others forget it
    follower = one.start("square")
    out.wait(len(sent))
    out.settle()
    assert len(out.messages) == len(sent)  # none was repeated, as all that went out had been committed
    assert one.stop(follower) == 0


@pytest.mark.nightly
def test_a_second_sigterm_does_not_wait(stage, until):
    # A batch takes longer than a starved machine takes to show its queue, and no query is dropped meanwhile.
    one = stage(
        "stages:\n  - {name: square, emulated: {alpha: 25s}, batching: {size: 1}, policy: naive}\npartitions: 1\n"
    )
    process = one.start("square")
    one.send_many(10)
    until(lambda: one.metrics("square").get("spillway_queue_depth", 0) >= 8)
    process.send_signal(signal.SIGTERM)
    until(lambda: "stopped with work left" in one.log("square") or not process.send_signal(signal.SIGTERM), 20)
    assert process.wait(600) == 1
    assert sum(one.committed("square").values()) == 0
