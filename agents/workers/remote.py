"""A worker on another host than its stage's front: `python -m spillway.agents.workers.remote JOB` (`spillway worker`).

It loads the model once, connects, and works for whatever front it reaches. A front that is lost is looked for again,
with longer and longer waits, and told Hello anew: what was under way for the one before is void.
"""

from __future__ import annotations

import json
import logging
import random
import signal
import socket
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from spillway.agents.log import as_parent
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.model_errors import words_of
from spillway.agents.workers import forks, frames, local, shim
from spillway.agents.workers.tls import HANDSHAKE_SECONDS, Secured, context_of
from spillway.lineage.errors import SpillwayError, UsageError

log = logging.getLogger("spillway.agents.workers.remote")  # it is run as __main__

_SHORTEST: Final = 0.25  # seconds between two attempts
_LONGEST: Final = 5.0
_SETTLED: Final = 10.0  # seconds of a connection after which the next attempt is made at once


class RemoteWorker:
    """One copy of a model, and the front that it works for, if there is one."""

    def __init__(self, job: dict[str, Any]) -> None:
        """Load the model. Raises ModelError, and UsageError for the certificates."""
        self._place = f"stage {job['stage']!r}: worker"
        self._address: tuple[str, int] = job["host"], job["port"]
        self._context = context_of(Path(job["tls"]), front=False)
        self._model, told = local.load(job)
        self._told = told | {"hash": job["hash"]}
        self._stopping = threading.Event()
        self._stream: shim.Stream | None = None

    def stop(self) -> None:
        """Ask the front for a drain, or end at once where there is none."""
        self._stopping.set()
        if self._stream is not None:
            threading.Thread(target=self._drain, args=(self._stream,), daemon=True).start()

    def serve(self) -> None:
        """Work until `stop`. Raises UsageError where a front refuses this worker."""
        wait = _SHORTEST
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._work()
            except ssl.SSLError as error:
                if "CERT" in str(error.reason) or "UNKNOWN_CA" in str(error.reason):
                    raise UsageError(
                        f"{self._place}: the front at {self._named} and this worker do not have certificates of the "
                        f"same authority ({error.reason}); give --tls a folder made with the authority in the stage's "
                        "'tls'"
                    ) from error
                self._refuse(error.reason)
            except frames.FrameError as error:
                self._refuse(error)
            except (OSError, EOFError) as error:
                log.warning("%s: there is no front at %s (%s)", self._place, self._named, error or "it has closed")
            wait = _SHORTEST if time.monotonic() - began > _SETTLED else min(2 * wait, _LONGEST)
            self._stopping.wait(wait * random.uniform(0.5, 1.0))  # noqa: S311 - so that many do not come at once

    def _refuse(self, why: object) -> None:
        log.warning("%s: the process at %s is not a front (%s)", self._place, self._named, why)

    @property
    def _named(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    def _work(self) -> None:
        connection = self._connect()
        try:
            stream = shim.Stream(connection)
            stream.receive()  # its first ping; or that it does not accept the certificate
            self._stream = stream
            if self._stopping.is_set():  # it was told to stop while it was connecting
                return
            log.info("%s: connected to %s", self._place, self._named)
            last = shim.work(stream, self._model, self._told, Inputs, words_of, connection.shut)
        finally:
            self._stream = None
            connection.close()
        if last is not None and last["kind"] == frames.REFUSED:
            raise UsageError(f"{self._place}: the front at {self._named} refuses this worker: {last.get('reason')}")
        log.info("%s: %s", self._place, "its front has ended" if last is None else "its front has said bye")

    def _connect(self) -> Secured:
        plain = socket.create_connection(self._address, HANDSHAKE_SECONDS)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return Secured(forks.ours(self._context.wrap_socket(plain)))
        except OSError:
            plain.close()
            raise

    @staticmethod
    def _drain(stream: shim.Stream) -> None:
        try:
            stream.send({"kind": frames.DRAIN})
        except OSError:
            log.info("the front was gone when it was asked to drain")


def main(job: dict[str, Any]) -> int:
    as_parent()
    forks.isolate_children()
    try:
        worker = RemoteWorker(job)
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, lambda *_: worker.stop())
        worker.serve()
    except SpillwayError as error:
        print(f"spillway: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
