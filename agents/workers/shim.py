"""What a worker runs: say Hello, then answer one batch after the other until the front says Bye.

How it runs the model is in `agents/models/contract.py`. It needs numpy, msgpack and the model's own packages, so that a
stage's `python:` may be another interpreter:

    python shim.py FD JOB       JOB is a JSON object: model (module:Class), arguments, path (folders to import from),
                                torch_threads

A worker remembers nothing and commits nothing. The end of the stream is the end of a local worker: its front is gone.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

try:
    from spillway.agents import log
    from spillway.agents.models import contract
    from spillway.agents.workers import forks, frames
except ModuleNotFoundError:  # run as a file by an interpreter that has no Spillway
    import forks  # type: ignore[no-redef,import-not-found]
    import frames  # type: ignore[no-redef,import-not-found]

    contract = frames.load_by_path("contract", "agents/models/contract.py")
    log = frames.load_by_path("log", "agents/log.py")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ENDS = (SystemExit,)  # what a model may raise to end its process


class Query(dict[str, Any]):
    """One query's named inputs, with the caller's parameters, the request's id and its key at hand."""

    def __init__(self, values: dict[str, Any], parameters: dict[str, Any], request_id: str, key: str) -> None:
        super().__init__(values)
        self.parameters = parameters
        self.request_id = request_id
        self.key = key

    def __missing__(self, name: str) -> Any:
        raise contract.no_input(self, name)


class Stream:
    """Frames over a connected socket. One thread reads; `send` may be called from several."""

    def __init__(self, connection: Any) -> None:
        """`connection`: a socket, or what has its `recv_into` and `sendall`, as `workers.tls.Secured`."""
        self._connection = connection
        self._reader = frames.FrameReader()
        self._lock = threading.Lock()

    def send(self, header: dict[str, Any]) -> None:
        buffers = frames.encode(header)
        with self._lock:
            for buffer in buffers:
                self._connection.sendall(buffer)

    def receive(self) -> list[dict[str, Any]]:
        """Wait for some of the stream; the frames that are complete by then. Raises EOFError at its end."""
        count = self._connection.recv_into(self._reader.wanted())
        if not count:
            raise EOFError
        self._reader.received(count)
        return list(self._reader.frames())


def begin() -> None:
    """Prepare the process of a local worker for a model, which logs as in a thread of the front.

    A front's Ctrl-C is for the front to decide on. It is not ignored, as what the model starts would ignore it, too.
    """
    log.as_parent()
    forks.isolate_children()
    signal.signal(signal.SIGINT, lambda *_: None)


def serve(
    connection: socket.socket,
    load: Callable[[], tuple[Any, dict[str, Any]]],
    query: Callable[..., Any] = Query,
    words: Callable[[BaseException], str] | None = None,
) -> None:
    """Load the model and serve until Bye or the end of the stream. SIGTERM asks the front for a drain.

    `load` gives the model and what Hello says of it; `query` makes the model's input of values, parameters, request id
    and key; `words` names what a model raised.
    """
    connection.set_inheritable(False)  # not for what the model starts, though this process has inherited it
    stream = Stream(forks.ours(connection))
    try:
        model, told = load()
    except ENDS:
        raise
    except BaseException as error:  # noqa: BLE001 - user code; the front says it
        with contextlib.suppress(OSError):  # the front may have ended meanwhile
            stream.send({"kind": frames.FAILED, "text": (words or _words)(error)})
        return
    signal.signal(
        signal.SIGTERM, lambda *_: threading.Thread(target=stream.send, args=({"kind": frames.DRAIN},)).start()
    )
    work(stream, model, told, query, words or _words, lost=_end)


def _end() -> None:
    """End at once, with whatever the model has started: nobody waits for an answer any more."""
    if os.getpgrp() == os.getpid():
        forks.end_group(os.getpid())
    os._exit(0)


def work(
    stream: Stream,
    model: Any,
    told: dict[str, Any],
    query: Callable[..., Any],
    words: Callable[[BaseException], str],
    lost: Callable[[], None],
) -> dict[str, Any] | None:
    """Say Hello with what is `told` and answer batches until the front's last frame, which is returned.

    That is Bye or Refused, or None where the connection has ended; `lost` is called then, while the model may run.
    """
    try:
        stream.send({"kind": frames.HELLO, "protocol": frames.PROTOCOL, "pid": os.getpid(), **told})
    except OSError:  # the front ended while the model was loading
        return None
    came: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(stream, came, lost), daemon=True).start()
    while (frame := came.get()) is not None and frame["kind"] == frames.BATCH:
        began = time.perf_counter()
        try:
            for first, answers in answers_of(model, frame["queries"], query, words, singly=bool(frame.get("singly"))):
                _send(stream, frame, first, answers, time.perf_counter() - began)
                del answers  # which may be large, and would be kept while the next batch runs
        except OSError:  # the front is gone, and with it whoever waits for the answer
            return None
    return frame


def _read(stream: Stream, came: queue.SimpleQueue[dict[str, Any] | None], lost: Callable[[], None]) -> None:
    """Take what the front sends while the model runs: a ping is answered at once."""
    with contextlib.suppress(EOFError, OSError, frames.FrameError):
        while True:
            for frame in stream.receive():
                if frame["kind"] == frames.PING:
                    stream.send({"kind": frames.PONG})
                elif frame["kind"] in {frames.BATCH, frames.BYE, frames.REFUSED}:
                    came.put(frame)
                    if frame["kind"] != frames.BATCH:
                        return
    came.put(None)
    lost()


def answers_of(
    model: Any,
    queries: list[dict[str, Any]],
    query: Callable[..., Any],
    words: Callable[[BaseException], str],
    *,
    singly: bool,
) -> Iterator[tuple[int, list[contract.Answer]]]:
    """Run a batch; yield the place of a first query with the answers from there on, as they come.

    `singly`: each query is run by itself, so that one which ends this process is the first without an answer. Raises
    what is of `ENDS`.
    """

    def make(place: int) -> Any:
        each = queries[place]
        return query(contract.given(each["inputs"]), contract.given(each["parameters"]), each["id"], each["key"])

    every = range(len(queries))
    for places in [range(place, place + 1) for place in every] if singly else [every]:
        yield places.start, contract.answers(lambda _, given: model.predict(given), make, places, words, ENDS)


def _send(stream: Stream, batch: dict[str, Any], first: int, answers: list[contract.Answer], seconds: float) -> None:
    told = {"kind": frames.ANSWER, "id": batch["id"], "first": first, "seconds": seconds}
    try:
        stream.send(told | {"results": answers})
    except frames.FrameError as error:
        if len(answers) > 1:  # the others' travel
            for place, each in enumerate(answers, first):
                _send(stream, batch, place, [each], seconds)
            return
        stream.send(told | {"results": [contract.failed(contract.BAD_RESULT, str(error))]})


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {contract.text_of(error)}"


def told_of(job: dict[str, Any], model: Any) -> dict[str, Any]:
    """Return what Hello says of a model."""
    signature = getattr(model, "input_signature", None)
    told = {"model": job["model"], "version": str(getattr(model, "version", "") or ""), "signature": signature}
    return told | {"deterministic": getattr(model, "deterministic", False) is True}


def load(job: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The model `module:Class`, and what Hello says of it. Raises whatever importing or constructing it raises."""
    module, _, name = job["model"].partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    made = found(**job["arguments"])
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(job["torch_threads"])
    return made, told_of(job, made)


def main(descriptor: int, job: dict[str, Any]) -> None:
    sys.path[:1] = job["path"]  # in place of this file's folder, whose modules are nobody's
    begin()
    serve(socket.socket(fileno=descriptor), lambda: load(job))


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
