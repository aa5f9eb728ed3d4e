"""The two ways of running a model that answers with the odd values of `tests.unit.odd_values`."""

import socket
import threading
from types import SimpleNamespace

from spillway.agents.core.request import Delivery, Request
from spillway.agents.live.stage.batch_work import BatchWork, UserFunctions
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.model_errors import words_of
from spillway.agents.run.emission import Carried
from spillway.agents.workers import frames, shim
from spillway.lineage.limits import Limits
from spillway.lineage.message import Query
from tests.unit.live.test_batch_work import stage_spec
from tests.unit.odd_values import NAMES

RECORD = SimpleNamespace(key=b"k", topic="in")


def model(names=NAMES):
    """Return a model that evaluates the expression in each query."""

    def predict(batch):
        return [{"y": eval(query["of"], dict(names))} for query in batch]

    return SimpleNamespace(predict=predict)


def request(number, inputs):
    part = Delivery(f"r{number}", 0, number, 1.0, 9.0, "", None, payload=Carried(RECORD, None, Query(inputs)))
    return Request(f"r{number}", 0, 1.0, 9.0, 2.0, (part,), {}, 2.5, 3.0)


def plain_functions():
    """Those of a stage whose author wrote none; they have its log of failures."""
    return UserFunctions(SimpleNamespace(coding=None, name="s", join=None, split=None, choose=None), ())


def work(served, functions=None):
    return BatchWork(
        stage_spec(), [served], functions or plain_functions(), joins=False, version="1", signature=None,
        limits=Limits(),
    )  # fmt: skip


def in_thread(served, inputs, functions=None):
    """Return the results of a batch that a thread runs."""
    batch = SimpleNamespace(requests=[request(n, each) for n, each in enumerate(inputs)])
    return work(served, functions).run(0, batch).results


class Worker:
    """A worker that runs `shim.work` in a thread: its stream, its frames and its loop, without the process."""

    def __init__(self, served):
        ours, theirs = socket.socketpair()
        self._stream = shim.Stream(ours)
        self._sockets = (ours, theirs)
        self.ended = threading.Event()
        args = (shim.Stream(theirs), served, {}, Inputs, words_of, self.ended.set)
        self._thread = threading.Thread(target=shim.work, args=args, daemon=True)
        self._thread.start()
        self._frames = []
        assert self.next()["kind"] == frames.HELLO

    def next(self):
        while not self._frames:
            self._frames += self._stream.receive()
        return self._frames.pop(0)

    def run(self, inputs, functions=None, *, singly=False):
        """Return the results of a batch, as the front makes them of the worker's answers."""
        batch = SimpleNamespace(requests=[request(n, each) for n, each in enumerate(inputs)])
        done = work(None, functions)
        prepared = done.prepare(batch)
        queries = [{"inputs": dict(i), "parameters": {}, "id": i.request_id, "key": i.key} for i in prepared.inputs]
        self._stream.send({"kind": frames.BATCH, "id": [b"f", 1], "queries": queries, "singly": singly})
        answers = []
        while len(answers) < len(inputs):
            answers += self.next()["results"]
        return done.finish(prepared, dict(enumerate(answers)), 0.0).results

    def close(self):
        self._stream.send({"kind": frames.BYE})
        self._thread.join(10)
        for each in self._sockets:
            each.close()


def shown(result, decoder):
    """Return what a client reads of a result: the reason, or the outputs as text, exact in types and bits."""
    reason = getattr(result, "reason", None)
    return reason if reason is not None else exact(decoder.outcome(result.payloads[None]).outputs)


def exact(value):
    if isinstance(value, dict):
        return {name: exact(each) for name, each in value.items()}
    if isinstance(value, list):
        return [exact(each) for each in value]
    if frames.plain.is_tensor(value):
        name, array = frames.plain.tensor(value)
        return name, array.shape, array.tobytes()
    return type(value).__name__, repr(value)
