"""A front's connections to its workers: one thread owns all sockets, and tells the loop what came of them.

A local worker is spawned with one end of a socketpair, so its end is heard as the end of the stream; as a child of its
may hold the other end, its process is watched, too. One of another host comes in by the door
(`spillway.agents.workers.door`), gets a ping a second, and is lost when nothing has come from it for three. A worker is
lost, too, when its connection ends, when it breaks the protocol, or when it runs a batch for longer than `timeout`.
What this thread was itself away is neither silence nor time of a batch. A local worker is killed then, and with it
whatever it has started (it leads a session); another's connection is closed, and it must say Hello anew. It is for the
stage's core to decide what becomes of the queries (`spillway.agents.core.stage`).
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import ssl
import subprocess
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from spillway.agents.models.contract import failed
from spillway.agents.workers import frames
from spillway.agents.workers.door import Door, listening
from spillway.agents.workers.forks import end_group, ours, watch_of
from spillway.agents.workers.processes import exit_of, started
from spillway.agents.workers.tls import PING_SECONDS, SILENT_SECONDS
from spillway.lineage import reasons
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


log = logging.getLogger(__name__)

LOAD_SECONDS: Final = 180.0  # as long as a stage's own process may take to start
_CHUNK: Final = 1 << 20  # bytes written at once
_TURN_BYTES: Final = 8 << 20  # read from one worker before others have their turn
_TURN_RECEIPTS: Final = 256
_LOOK_SECONDS: Final = 0.25  # between looks at what takes too long
_GIVEN_UP_SECONDS: Final = SILENT_SECONDS - PING_SECONDS - _LOOK_SECONDS  # away for longer: a peer may have left
_BYE_SECONDS: Final = 1.0
_GOODBYE_SECONDS: Final = 5.0  # that a worker has to close its connection once it was told Bye or Refused
_LATER: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class WorkerLostError(ModelError):
    """A worker's connection ended, or it was given up; the text says why."""


class Listener(Protocol):
    """Who hears of the workers. Every method is called on the links' thread."""

    def ready(self, worker: int, hello: dict[str, Any]) -> None: ...

    def answered(self, worker: int, job: Any, first: int, results: list[Any], seconds: float) -> None:
        """`first`: the place of the batch's query that the first of `results` is of."""

    def lost(self, worker: int, job: Any | None, answered: int, why: str, *, failed: bool) -> None:
        """`job`: the batch that it had, of which the first `answered` queries are answered, or have no part in its end.

        `failed`: the model could not be loaded, so that another worker would not fare better.
        """

    def draining(self, worker: int) -> None: ...

    def broken(self, error: Exception) -> None:
        """The links' thread has ended by an error of our own; nothing more is heard of any worker."""


@dataclass(slots=True)
class _Link:
    worker: int
    connection: socket.socket
    process: subprocess.Popen[bytes] | None
    began: float  # when it was started, when its batch was sent, or when it was told to end
    peer: str = ""  # of another host: its address
    reader: frames.FrameReader = field(default_factory=frames.FrameReader)
    out: deque[memoryview] = field(default_factory=deque)
    hello: bool = False
    job: Any = None
    queries: list[dict[str, Any]] = field(default_factory=list)  # of the job
    singly: bool = False
    answered: int = 0  # of these
    unsent: list[range] = field(default_factory=list)  # of these, what goes in further frames; the next one last
    frame: range = range(0)  # of these, what the newest frame has
    seconds: float = 0.0  # that the frames before it ran
    sent: int = 0  # the id of the newest frame
    bye: bool = False
    heard: float = 0.0  # of another host: when something came from it
    pinged: float = 0.0
    watch: int | None = None  # a descriptor that tells the process's end, where the system has such


class Links:
    """The workers of one front. All methods may be called from any thread."""

    def __init__(
        self, listener: Listener, *, timeout: float, command: Callable[[int], Sequence[str]] | None = None
    ) -> None:
        """`timeout`: seconds of a batch.

        `command`: of those that are spawned, their command line for the descriptor that they inherit.
        """
        self._listener = listener
        self._command = command
        self._timeout = timeout
        self._front = os.urandom(8)
        self._links: dict[int, _Link] = {}
        self._todo: deque[Callable[[], None]] = deque()
        self._selector = ours(selectors.DefaultSelector())
        self._waker, self._woken = map(ours, socket.socketpair())
        self._woken.settimeout(0.0)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._sent = 0
        self._door: Door | None = None
        self._came = 0  # workers of other hosts
        self._model: str | None = None
        self._closing = False
        self._looked = time.monotonic()  # when this thread was there last
        self._spared = 0.0  # until when peers may still leave as it was not
        self._thread = threading.Thread(target=self._run, name="workers", daemon=True)
        self._thread.start()

    def spawn(self, worker: int) -> None:
        """Start a local worker, unless all are ended."""
        assert self._command is not None  # else they come from other hosts
        if not self._closing:
            self.adopt(worker, *started(self._command))

    def adopt(self, worker: int, connection: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        """Speak to a worker over a connected socket."""
        connection.settimeout(0.0)
        self.call(lambda: self._add(_Link(worker, connection, process, time.monotonic())))

    def listen(self, address: tuple[str, int], context: ssl.SSLContext, model: str | None) -> None:
        """Let workers of other hosts come, numbered from 0, beside no local one. Raises UsageError for the address.

        `model`: the hash that they must have (`spillway.agents.workers.identity`); None: that of the first.
        """
        server = listening(address)

        def begin() -> None:
            self._model = model
            self._door = Door(server, context, self._selector, self._admit)

        self.call(begin)

    def send(self, worker: int, job: Any, queries: list[dict[str, Any]], *, singly: bool) -> None:
        """Send a batch to a worker; the listener gets `job` back with what came of it."""
        self.call(lambda: self._send_batch(worker, job, queries, singly=singly))

    def bye(self, worker: int) -> None:
        """End a worker that runs nothing; the listener hears nothing more of it."""
        self.call(lambda: self._send_bye(worker))

    def close(self) -> None:
        """End all workers, those that run something by SIGKILL. A second time does nothing."""
        if self._closing:
            return
        self._closing = True
        self._waker.send(b"\0")
        self._thread.join(2 * _BYE_SECONDS)
        if not self._thread.is_alive():  # not by the thread: it may end before it is woken
            self._waker.close()
            self._woken.close()

    def call(self, what: Callable[[], None]) -> None:
        """Call something on the thread, as soon as it has nothing to read or write; nothing once all are ended."""
        if not self._closing:
            self._todo.append(what)
            self._waker.send(b"\0")

    # On the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._serve_all()
        except Exception as error:  # noqa: BLE001 - a thread that dies in silence would hang its batches
            self._listener.broken(error)

    def _serve_all(self) -> None:
        while not self._closing:
            for key, events in self._selector.select(_LOOK_SECONDS if self._links or self._door else None):
                link = key.data
                if link is None:
                    self._woken.recv(4096)
                elif not isinstance(link, _Link):
                    link(events)
                elif link.worker in self._links:
                    self._serve(link, events)
            while self._todo:
                self._todo.popleft()()
            self._look(time.monotonic())
        self._end()

    def _add(self, link: _Link) -> None:
        self._links[link.worker] = link
        self._selector.register(ours(link.connection), selectors.EVENT_READ, link)
        if link.process is not None:
            link.watch = watch_of(link.process.pid)
        if link.watch is not None:
            self._selector.register(link.watch, selectors.EVENT_READ, partial(self._died, link))

    def _died(self, link: _Link, _events: int = 0) -> None:
        """Lose a worker whose process has ended, once nothing that it sent is left to be read."""
        if self._links.get(link.worker) is not link:
            return
        try:
            link.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:  # a child of its holds the other end
            self._lose(link, f"its process ended{exit_of(link.process)}")
        except OSError:
            return  # reading finds it, too

    def _admit(self, connection: ssl.SSLSocket, peer: str) -> None:
        """Take in a worker of another host. Its first ping tells it that its certificate was accepted."""
        now = time.monotonic()
        link = _Link(self._came, connection, None, now, peer, heard=now, pinged=now)
        self._came += 1
        self._add(link)
        self._put(link, {"kind": frames.PING})
        if link.worker in self._links:
            self._serve(link, selectors.EVENT_READ)  # what came with the handshake wakes nobody

    def _serve(self, link: _Link, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._write(link)
            if events & selectors.EVENT_READ:
                self._read(link)
        except (OSError, EOFError) as error:
            self._lose(link, f"its connection ended{_of(error)}{exit_of(link.process)}")
        except frames.FrameError as error:
            self._lose(link, f"it broke the protocol: {error}")

    def _read(self, link: _Link) -> None:
        """Take what has come, but leave some for the next turn where it does not end: others have their turns, too.

        What a TLS connection has decrypted is taken to its end, as it would wake nobody.
        """
        left, receipts = _TURN_BYTES, 0
        while (left > 0 and receipts < _TURN_RECEIPTS) or _decrypted(link.connection):
            try:
                count = link.connection.recv_into(link.reader.wanted())
            except _LATER:
                return
            if not count:
                raise EOFError
            left, receipts = left - count, receipts + 1
            link.heard = time.monotonic()
            link.reader.received(count)
            for frame in link.reader.frames():
                self._take(link, frame)
                if link.worker not in self._links:
                    return

    def _take(self, link: _Link, frame: dict[str, Any]) -> None:
        kind = frame["kind"]
        if link.bye and not link.hello:
            return  # it was refused
        if kind == frames.ANSWER:
            self._answer(link, frame)
        elif kind == frames.HELLO and not link.hello:
            self._hello(link, frame)
        elif kind == frames.FAILED and not link.hello:
            self._lose(link, str(frame.get("text")), failed=True)
        elif kind == frames.DRAIN and link.hello:
            self._listener.draining(link.worker)
        elif kind == frames.PING:
            if not link.out:  # else it has not even taken what it was sent before
                self._put(link, {"kind": frames.PONG})
        elif kind != frames.PONG:
            raise frames.FrameError(f"a {kind!r:.40} was not expected")

    def _hello(self, link: _Link, frame: dict[str, Any]) -> None:
        if frame.get("protocol") != frames.PROTOCOL:
            why = f"it speaks protocol {frame.get('protocol')!r:.20}, not {frames.PROTOCOL}"
            if not link.peer:
                raise frames.FrameError(why)
            self._refuse(link, why)
            return
        told = frame.get("hash")
        if link.peer and (not isinstance(told, str) or told != (self._model or told)):
            self._refuse(
                link,
                f"its model {frame.get('model')!r:.100} is not the one that is served: the model, its arguments and "
                "the source of its module must be the same on both hosts",
            )
            return
        if link.peer:
            self._model = told
        link.hello = True
        self._listener.ready(link.worker, frame)

    def _refuse(self, link: _Link, why: str) -> None:
        self._complain(link, why)
        link.bye, link.began = True, time.monotonic()
        self._put(link, {"kind": frames.REFUSED, "reason": why})

    def _complain(self, link: _Link, why: str) -> None:
        assert self._door is not None  # whoever has a peer came in by it
        self._door.complain(f"{link.peer}: {why}")

    def _answer(self, link: _Link, frame: dict[str, Any]) -> None:
        first, results, seconds = frame.get("first"), frame.get("results"), frame.get("seconds")
        if frame.get("id") != [self._front, link.sent] or link.job is None:
            return  # of another front, or of a batch that was given up
        frame_of = link.frame
        if not (isinstance(results, list) and isinstance(seconds, float) and first == link.answered - frame_of.start):
            raise frames.FrameError("its answer has no results")
        if not results or link.answered + len(results) > frame_of.stop or not all(map(_is_result, results)):
            raise frames.FrameError(f"its answer has {len(results)} results for {len(frame_of)} queries")
        link.began = time.monotonic()
        self._answered(link, results, link.seconds + seconds)
        if link.unsent and link.answered == frame_of.stop:
            link.seconds += seconds
            self._send_next(link)

    def _answered(self, link: _Link, results: list[Any], seconds: float) -> None:
        """Pass the results of the job's next queries to the listener; the last of them ends the job."""
        job, first = link.job, link.answered
        link.answered += len(results)
        if link.answered == len(link.queries):
            link.job, link.queries = None, []
        self._listener.answered(link.worker, job, first, results, seconds)

    def _send_batch(self, worker: int, job: Any, queries: list[dict[str, Any]], *, singly: bool) -> None:
        link = self._links.get(worker)
        if link is None:
            return  # it was lost a moment ago, and the loop hears so
        link.job, link.queries, link.singly = job, queries, singly
        link.answered, link.seconds, link.unsent = 0, 0.0, [range(len(queries))]
        self._send_next(link)

    def _send_next(self, link: _Link) -> None:
        """Send what is left of the job. What one frame cannot hold goes in halves; a query that none can hold fails."""
        while link.unsent:
            those = link.unsent.pop()
            self._sent += 1
            told = {"id": [self._front, self._sent], "queries": link.queries[those.start : those.stop]}
            try:
                buffers = frames.encode({"kind": frames.BATCH, **told, "singly": link.singly})
            except frames.FrameError as error:
                if len(those) == 1:
                    self._answered(link, [failed(reasons.TOO_LARGE, str(error))], link.seconds)
                else:
                    half = those.start + len(those) // 2
                    link.unsent += [range(half, those.stop), range(those.start, half)]
                continue
            link.frame, link.sent, link.began = those, self._sent, time.monotonic()
            self._write_all(link, buffers)
            return

    def _put(self, link: _Link, header: dict[str, Any]) -> None:
        self._write_all(link, frames.encode(header))

    def _write_all(self, link: _Link, buffers: list[bytes | memoryview]) -> None:
        link.out.extend(map(memoryview, buffers))
        try:
            self._write(link)
        except OSError as error:
            self._lose(link, f"its connection ended{_of(error)}{exit_of(link.process)}")

    def _write(self, link: _Link) -> None:
        while link.out:
            head = link.out[0]
            try:
                count = link.connection.send(head[:_CHUNK])
            except _LATER:
                break
            if count == len(head):
                link.out.popleft()
            else:
                link.out[0] = head[count:]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.out else 0)
        if self._selector.get_key(link.connection).events != wanted:
            self._selector.modify(link.connection, wanted, link)

    def _excuse(self, now: float, away: float) -> None:
        for link in self._links.values():
            link.began, link.heard = min(now, link.began + away), min(now, link.heard + away)
        if self._door is not None:
            self._door.excuse(away)
        self._spared = now + PING_SECONDS if away > _GIVEN_UP_SECONDS else self._spared

    def _look(self, now: float) -> None:
        away, self._looked = now - self._looked - _LOOK_SECONDS, now
        if away > _LOOK_SECONDS:
            self._excuse(now, away)  # no age has what this thread was away
        if self._door is not None:
            self._door.look(now)
        for link in list(self._links.values()):
            if link.process is not None and link.watch is None and link.process.poll() is not None:
                self._died(link)
            elif link.bye:
                if now - link.began > _GOODBYE_SECONDS:
                    self._remove(link)
            elif link.peer and now - link.heard > SILENT_SECONDS:
                self._lose(link, f"nothing came from {link.peer} for {SILENT_SECONDS:g} s: three pings were missed")
            elif link.job is not None and now - link.began > self._timeout:
                self._lose(
                    link,
                    f"it ran a batch of {len(link.frame)} for more than {self._timeout:g} s, its timeout ('timeout' "
                    "under 'workers' in the pipeline file)",
                )
            elif not link.hello and now - link.began > LOAD_SECONDS:
                self._lose(link, f"it did not load its model within {LOAD_SECONDS:g} s")
            elif link.peer and now - link.pinged >= PING_SECONDS:
                link.pinged = now
                self._put(link, {"kind": frames.PING})

    def _lose(self, link: _Link, why: str, *, failed: bool = False) -> None:
        (job, link.job), now = (link.job, None), time.monotonic()
        unheard = link.peer and (now < self._spared or now - self._looked > _GIVEN_UP_SECONDS)  # it heard us not
        blameless = len(link.queries) if unheard else link.answered
        self._remove(link)
        if link.peer and not link.hello:
            if not link.bye:
                self._complain(link, why)
        elif not link.bye:
            self._listener.lost(link.worker, job, blameless, why, failed=failed)

    def _remove(self, link: _Link) -> None:
        del self._links[link.worker]
        self._selector.unregister(link.connection)
        link.connection.close()
        if link.watch is not None:
            self._selector.unregister(link.watch)
            os.close(link.watch)
        if link.process is not None:
            end_group(link.process.pid)
            link.process.wait()

    def _send_bye(self, worker: int) -> None:
        link = self._links.get(worker)
        if link is not None:
            link.bye, link.began = True, time.monotonic()
            self._put(link, {"kind": frames.BYE})

    def _end(self) -> None:
        for link in list(self._links.values()):
            link.bye = True
            if link.job is None and link.hello:
                self._put(link, {"kind": frames.BYE})
        until = time.monotonic() + _BYE_SECONDS
        for link in list(self._links.values()):
            if link.process is not None and link.job is None and link.hello:
                try:
                    link.process.wait(max(0.0, until - time.monotonic()))
                except subprocess.TimeoutExpired:
                    log.warning("worker %s did not end when told to; it is killed", link.worker)
            self._remove(link)
        if self._door is not None:
            self._door.close()
        self._selector.close()


def _decrypted(connection: socket.socket) -> bool:
    return isinstance(connection, ssl.SSLSocket) and connection.pending() > 0


def _is_result(result: Any) -> bool:
    return isinstance(result, dict) and ("outputs" in result or isinstance(result.get("error"), str))


def _of(error: BaseException) -> str:
    return f" ({error})" if str(error) else ""
