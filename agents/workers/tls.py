"""Mutual TLS between a front and the workers on other hosts: each has a certificate of the same authority."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Final

from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

PING_SECONDS: Final = 1.0
SILENT_SECONDS: Final = 3 * PING_SECONDS  # three pings without an answer: the other side is lost
HANDSHAKE_SECONDS: Final = 5.0
_RECORD: Final = 1 << 16  # bytes written at once


def context_of(folder: Path, *, front: bool) -> ssl.SSLContext:
    """The settings of one side, of the folder's ca.pem, cert.pem and key.pem. Raises UsageError that names the file.

    Who has a certificate of the authority is trusted, whatever host the certificate names.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if front else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    for name in ("ca.pem", "cert.pem", "key.pem"):
        if not (folder / name).is_file():
            raise UsageError(f"there is no {folder / name}; docs/workers.md says how to make the folder")
    try:
        context.load_verify_locations(folder / "ca.pem")
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    except (ssl.SSLError, OSError) as error:
        raise UsageError(
            f"the certificates in {folder} cannot be used: {error}; docs/workers.md says how to make them"
        ) from error
    return context


class Secured:
    """A TLS connection that one thread reads while others write: OpenSSL allows one call at a time.

    Who reads is told by TimeoutError (an OSError) of a silence of `SILENT_SECONDS`.
    """

    def __init__(self, connection: ssl.SSLSocket) -> None:
        connection.settimeout(0.0)
        self._connection = connection
        self._lock = threading.Lock()

    def recv_into(self, room: memoryview) -> int:
        until = time.monotonic() + SILENT_SECONDS
        while True:
            try:
                with self._lock:
                    return self._connection.recv_into(room)
            except ssl.SSLWantReadError:
                if not self._ready(max(0.0, until - time.monotonic()), reading=True):  # what has come is read first
                    raise TimeoutError(f"nothing came for {SILENT_SECONDS:g} s") from None

    def sendall(self, data: bytes | memoryview) -> None:
        """Write it all; only one thread at a time may do so, as `shim.Stream` sees to."""
        view = memoryview(data)
        while view:
            try:
                with self._lock:
                    view = view[self._connection.send(view[:_RECORD]) :]
            except ssl.SSLWantWriteError:
                self._ready(SILENT_SECONDS, reading=False)

    def _ready(self, seconds: float, *, reading: bool) -> bool:
        mine = [self._connection]
        try:
            return any(select.select(mine if reading else [], [] if reading else mine, [], seconds))
        except ValueError as error:  # it was closed meanwhile, and has no descriptor any more
            raise ConnectionAbortedError("the connection was closed") from error

    def shut(self) -> None:
        """Have whoever reads or writes find the connection ended."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._connection, socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            self._connection.close()
