"""Where workers of other hosts come in: a front's listening socket, and the TLS handshakes that are under way.

All of it happens on the links' thread and nothing blocks it: a handshake goes on when its bytes are there, for at most
`HANDSHAKE_SECONDS`. Who speaks no TLS or has no certificate of the authority is closed, and said once a minute.
"""

from __future__ import annotations

import logging
import selectors
import socket
import ssl
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from spillway.agents.workers.forks import ours
from spillway.agents.workers.tls import HANDSHAKE_SECONDS
from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

_GUESTS: Final = 64  # handshakes at once
_BACKLOG: Final = 128
_SAID_SECONDS: Final = 60.0


def listening(address: tuple[str, int]) -> socket.socket:
    """A listening socket that does not block. Raises UsageError where the address cannot be had."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        made = socket.create_server(address, family=family, backlog=_BACKLOG)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {address[0]}:{address[1]} for workers: {error.strerror or error}; give another 'listen' "
            "under 'workers' in the pipeline file"
        ) from error
    made.settimeout(0.0)
    return ours(made)


class Door:
    """Accepts connections, and gives those that have shown a certificate to `admit`, with the peer's address."""

    def __init__(
        self,
        server: socket.socket,
        context: ssl.SSLContext,
        selector: selectors.BaseSelector,
        admit: Callable[[ssl.SSLSocket, str], None],
    ) -> None:
        """`selector` has callables as data, which are called with the events; this adds the door's own."""
        self._server = server
        self._context = context
        self._selector = selector
        self._admit = admit
        self._guests: dict[ssl.SSLSocket, tuple[float, str]] = {}  # since when (monotonic), and from where
        self._open = False
        self._said = float("-inf")
        self._unsaid = 0
        self.look(0.0)

    def look(self, now: float) -> None:
        """Close what takes too long; listen again after a pause."""
        for guest, (since, _) in list(self._guests.items()):
            if now - since > HANDSHAKE_SECONDS:
                self._turn_away(guest, f"it did not finish its TLS handshake within {HANDSHAKE_SECONDS:g} s")
        if not self._open and len(self._guests) < _GUESTS:
            self._selector.register(self._server, selectors.EVENT_READ, self._accept)
            self._open = True

    def excuse(self, seconds: float) -> None:
        """Leave out of the handshakes' ages what nobody was there to go on with them."""
        self._guests = {guest: (since + seconds, place) for guest, (since, place) in self._guests.items()}

    def complain(self, text: str) -> None:
        """Log it, at most one such line a minute."""
        now = time.monotonic()
        if now - self._said < _SAID_SECONDS:
            self._unsaid += 1
            return
        more = f" (and {self._unsaid} more rejections since the last message)" if self._unsaid else ""
        log.warning("a worker's connection was rejected: %s%s", text, more)
        self._said, self._unsaid = now, 0

    def close(self) -> None:
        for guest in list(self._guests):
            self._forget(guest)
            guest.close()
        if self._open:
            self._selector.unregister(self._server)
        self._server.close()

    def _accept(self, _events: int) -> None:
        try:
            connection, peer = self._server.accept()
        except BlockingIOError:
            return
        except OSError as error:  # out of descriptors: look again in a moment, not at once
            self.complain(f"its connection cannot be accepted: {error}")
            self._pause()
            return
        place = f"{peer[0]}:{peer[1]}"
        connection.settimeout(0.0)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            guest = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        except OSError as error:
            connection.close()
            self.complain(f"{place}: {error}")
            return
        self._guests[ours(guest)] = time.monotonic(), place
        self._selector.register(guest, selectors.EVENT_READ, partial(self._shake, guest))
        if len(self._guests) >= _GUESTS:
            self._pause()

    def _pause(self) -> None:
        self._selector.unregister(self._server)
        self._open = False

    def _shake(self, guest: ssl.SSLSocket, _events: int) -> None:
        if guest not in self._guests:
            return
        try:
            guest.do_handshake()
        except ssl.SSLWantReadError:
            self._selector.modify(guest, selectors.EVENT_READ, partial(self._shake, guest))
        except ssl.SSLWantWriteError:
            self._selector.modify(guest, selectors.EVENT_WRITE, partial(self._shake, guest))
        except (OSError, ValueError) as error:
            self._turn_away(guest, f"it showed no certificate of this stage's authority ({error})")
        else:
            place = self._forget(guest)
            self._admit(guest, place)

    def _turn_away(self, guest: ssl.SSLSocket, why: str) -> None:
        self.complain(f"{self._forget(guest)}: {why}")
        guest.close()

    def _forget(self, guest: ssl.SSLSocket) -> str:
        self._selector.unregister(guest)
        return self._guests.pop(guest)[1]
